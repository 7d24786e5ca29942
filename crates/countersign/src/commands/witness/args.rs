//! The arguments of `countersign witness`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use tlog::VerifierKey;

#[derive(Debug, Subcommand)]
pub(crate) enum WitnessCommand {
    /// Make a witness: a private key, and what it has cosigned, in one file. Prints the public key.
    New(NewArgs),
    /// Serve a witness over HTTP (c2sp.org/tlog-witness): POST /add-checkpoint.
    Serve(ServeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The file, which must not exist. Only its owner may read it. Never replace it by an older copy: the
    /// witness would cosign again what it has cosigned already.
    pub(crate) file: PathBuf,
    /// The name of the witness, a URL without its scheme, such as witness.example.com/w1.
    #[arg(long)]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The file that `witness new` made.
    pub(crate) file: PathBuf,
    /// Public key of a log to cosign, as `countersign audit keys list` prints it. Can be given several times,
    /// also for one log.
    #[arg(long, value_name = "VKEY", required = true)]
    pub(crate) log_key: Vec<VerifierKey>,
    /// Address to listen on. Other machines reach a witness through a proxy with TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7790")]
    pub(crate) listen: SocketAddr,
}
