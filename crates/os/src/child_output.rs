//! The output of a program that an operator has named in the configuration, such as one that signs or that prints a
//! password: bounded in time and in memory, whatever the program does.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest output. Tokens of clouds have up to a few kilobytes, and signatures less.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// The bytes of standard error that a message quotes.
const MAX_QUOTED_BYTES: usize = 500;

/// Why a program has no output that can be used: the end of a sentence about it. It may quote what the program wrote to
/// standard error, and never what it has printed on standard output.
#[derive(Debug)]
pub enum ChildError {
    NotRun(std::io::Error),
    NotWaitedFor(std::io::Error),
    TooSlow,
    TooLong,
    Failed { status: ExitStatus, stderr: String },
}

impl std::fmt::Display for ChildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotRun(error) => write!(f, "cannot be run: {error}"),
            Self::NotWaitedFor(error) => write!(f, "cannot be waited for: {error}"),
            Self::TooSlow => write!(f, "did not end within {} s", TIMEOUT.as_secs()),
            Self::TooLong => write!(f, "printed more than {} KiB", MAX_OUTPUT_BYTES >> 10),
            Self::Failed { status, stderr } => write!(f, "failed ({status}): {stderr}"),
        }
    }
}

impl std::error::Error for ChildError {}

/// Runs a program with `input` on standard input, and returns what it has printed on standard output.
///
/// # Errors
/// [`ChildError`]: it did not succeed within the limits.
pub async fn child_output(mut command: Command, input: &[u8]) -> Result<Vec<u8>, ChildError> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(ChildError::NotRun)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let written = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read all of it is judged by its output.
            let _ = stdin.write_all(input).await;
        }
    };
    let outcome = tokio::time::timeout(TIMEOUT, async {
        let ((), output, errors) =
            tokio::join!(written, start_of(stdout, MAX_OUTPUT_BYTES + 1), start_of(stderr, MAX_QUOTED_BYTES));
        (output, errors, child.wait().await)
    });
    let (output, errors, status) = outcome.await.map_err(|_| ChildError::TooSlow)?;
    let status = status.map_err(ChildError::NotWaitedFor)?;
    if !status.success() {
        return Err(ChildError::Failed { status, stderr: String::from_utf8_lossy(&errors).trim().to_owned() });
    }
    if output.len() > MAX_OUTPUT_BYTES { Err(ChildError::TooLong) } else { Ok(output) }
}

/// The first bytes that a program prints. It keeps reading, so that the program ends.
async fn start_of(stream: Option<impl AsyncRead + Unpin>, bytes: usize) -> Vec<u8> {
    let mut start = Vec::new();
    if let Some(mut stream) = stream {
        let limit = u64::try_from(bytes).unwrap_or(u64::MAX);
        // What was read before an error is judged like all else.
        let _ = (&mut stream).take(limit).read_to_end(&mut start).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    start
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    async fn output(script: &str, input: &[u8]) -> Result<Vec<u8>, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        child_output(command, input).await.map_err(|error| error.to_string())
    }

    /// The most memory that this process has had, in KiB.
    #[cfg(target_os = "linux")]
    fn peak_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[tokio::test]
    async fn a_program_gets_the_input_and_its_output_is_returned_up_to_the_limit() {
        assert_eq!(output("cat", b"a b").await.unwrap(), b"a b");
        // More than a pipe holds, in both directions at once.
        let long = vec![b'x'; MAX_OUTPUT_BYTES];
        assert_eq!(output("cat", &long).await.unwrap().len(), MAX_OUTPUT_BYTES);
        assert_eq!(output("cat; echo", &long).await.unwrap_err(), "printed more than 64 KiB");
        assert_eq!(output("exec <&-; echo done", &long).await.unwrap(), b"done\n");
        let failed = output("printf no; printf ' why ' >&2; exit 3", b"").await.unwrap_err();
        assert_eq!(failed, "failed (exit status: 3): why");
        let long = output("head -c 100000 /dev/zero | tr '\\0' e >&2; exit 1", b"").await.unwrap_err();
        assert!(long.len() < 600 && long.ends_with("eee"), "{long}");
        let absent = child_output(Command::new("/absent"), b"").await.unwrap_err().to_string();
        assert!(absent.starts_with("cannot be run: "), "{absent}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn output_beyond_the_limit_takes_no_memory() {
        let before = peak_kib();
        let failed = output("head -c 200000000 /dev/zero", b"").await.unwrap_err();
        assert_eq!(failed, "printed more than 64 KiB");
        assert!(peak_kib() - before < 50_000, "{} KiB more", peak_kib() - before);
    }
}
