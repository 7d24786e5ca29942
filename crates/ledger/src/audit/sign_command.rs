//! A command that signs, such as the client of a key management service.

use std::process::Stdio;
use std::time::Duration;

use tlog::{SignedNote, VerifierKey};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::sign_error::SignError;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the command to sign the text. The command must sign with one of the given keys.
pub(super) async fn sign(command: &str, text: &str, keys: &[VerifierKey]) -> Result<SignedNote, SignError> {
    let output = tokio::time::timeout(TIMEOUT, run(command, text)).await;
    let output = output.map_err(|_| failed(format!("did not end within {} s", TIMEOUT.as_secs())))?;
    let output = output.map_err(|error| failed(format!("cannot be run: {error}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("failed ({}): {}", output.status, types::visible(stderr.trim()))));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let signed = keys.iter().find_map(|key| key.accept(text, printed.trim()));
    let signature = signed.ok_or_else(|| {
        failed(
            "printed no signature by a key of this log: it takes 64 bytes in base64 (Ed25519 over standard input)"
                .to_owned(),
        )
    })?;
    Ok(SignedNote::new(text.to_owned(), vec![signature]))
}

async fn run(command: &str, text: &str) -> std::io::Result<std::process::Output> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A command that does not read all of the text is judged by its output.
        match input.write_all(text.as_bytes()).await {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    child.wait_with_output().await
}

fn failed(why: String) -> SignError {
    SignError::Command(why)
}
