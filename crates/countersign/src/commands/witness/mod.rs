//! `countersign witness`: a witness of logs, for a machine that the operators of the logs do not control. It needs no
//! database.

pub(crate) mod args;

use anyhow::{Context, ensure};
use tlog::{KeyKind, SigningKey};
use tokio::net::TcpListener;
use witness::StateFile;

use self::args::{NewArgs, ServeArgs, WitnessCommand};
use crate::signals::stop_on_signals;
use crate::terminal::print_line;

pub(crate) async fn run(command: WitnessCommand) -> anyhow::Result<()> {
    match command {
        WitnessCommand::New(arguments) => new(&arguments),
        WitnessCommand::Serve(arguments) => serve(arguments).await,
    }
}

fn new(NewArgs { file, name }: &NewArgs) -> anyhow::Result<()> {
    let key = SigningKey::generate(name, KeyKind::Witness)?;
    StateFile::create(file, &key)?;
    print_line(&format!("The private key of the witness is in {}. Its public key:", file.display()));
    print_line(&format!("  {}", key.verifier_key()));
    Ok(())
}

async fn serve(ServeArgs { file, log_key, listen }: ServeArgs) -> anyhow::Result<()> {
    for key in &log_key {
        ensure!(key.kind() == KeyKind::Log, "{key} is the key of a witness: that of a log has the type 1");
    }
    let state = StateFile::open(&file)?;
    let name = state.key().verifier_key().name();
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen} (--listen)"))?;
    tracing::info!("the witness {name} is listening on http://{}", listener.local_addr()?);
    witness::serve(listener, state, log_key, stop_on_signals()?).await;
    Ok(())
}
