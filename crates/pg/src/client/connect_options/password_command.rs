//! A program that prints the password of a login: a token that a cloud issues for minutes, or a secret of a vault.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::Instant;
use types::Secret;

use super::ConnectOptions;
use super::address::Address;

/// A program and its arguments. It runs without a shell. Clones share the passwords that it has printed.
#[derive(Debug, Clone)]
pub struct PasswordCommand {
    /// `{host}`, `{port}`, `{user}` and `{dbname}` stand for those of the connection.
    arguments: Vec<String>,
    lifetime: Duration,
    printed: Arc<Mutex<HashMap<Vec<String>, Printed>>>,
}

#[derive(Debug)]
struct Printed {
    password: Secret,
    at: Instant,
}

impl PartialEq for PasswordCommand {
    fn eq(&self, other: &Self) -> bool {
        (&self.arguments, self.lifetime) == (&other.arguments, other.lifetime)
    }
}

impl PasswordCommand {
    /// The program, its arguments, and how long a password serves for new connections.
    #[must_use]
    pub fn new(arguments: Vec<String>, lifetime: Duration) -> Self {
        Self { arguments, lifetime, printed: Arc::default() }
    }

    /// The password for a server: the last one, or that of a new run. Only one run is under way at a time.
    ///
    /// # Errors
    /// The reason why there is none: a sentence that never quotes what the program has printed on standard output.
    pub(crate) async fn password(&self, options: &ConnectOptions, address: &Address) -> Result<Secret, String> {
        let arguments = self.arguments_for(options, address);
        let (printed, lifetime) = (Arc::clone(&self.printed), self.lifetime);
        // In a task: a caller that gives up leaves the password to the next one.
        let task = tokio::spawn(async move {
            let mut printed = printed.lock().await;
            if let Some(last) = printed.get(&arguments).filter(|last| last.at.elapsed() < lifetime) {
                return Ok(last.password.clone());
            }
            let password = run(&arguments).await?;
            printed.insert(arguments, Printed { password: password.clone(), at: Instant::now() });
            Ok(password)
        });
        task.await.unwrap_or_else(|error| Err(format!("the password command failed: {error}")))
    }

    /// Forgets the passwords that were printed before a time. Returns whether there were any.
    pub(crate) async fn forget_before(&self, time: Instant) -> bool {
        let mut printed = self.printed.lock().await;
        let before = printed.len();
        printed.retain(|_, last| last.at >= time);
        printed.len() < before
    }

    fn arguments_for(&self, options: &ConnectOptions, address: &Address) -> Vec<String> {
        let values = [
            ("{host}", address.host().unwrap_or_default().to_owned()),
            ("{port}", address.port().to_string()),
            ("{user}", options.user.clone()),
            ("{dbname}", options.dbname.clone()),
        ];
        self.arguments.iter().map(|argument| filled_in(argument, &values)).collect()
    }
}

/// The text with a value for each name, in one pass: a name within a value is a part of that value.
fn filled_in(text: &str, values: &[(&str, String)]) -> String {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, from)) = rest.find('{').and_then(|at| rest.split_at_checked(at)) {
        filled.push_str(before);
        let named = values.iter().find_map(|(name, value)| Some((value.as_str(), from.strip_prefix(name)?)));
        let (value, after) = named.or_else(|| Some(("{", from.strip_prefix('{')?))).unwrap_or_default();
        filled.push_str(value);
        rest = after;
    }
    filled + rest
}

async fn run(arguments: &[String]) -> Result<Secret, String> {
    let [program, rest @ ..] = arguments else { return Err("the password command names no program".to_owned()) };
    let failed = |what: &str| format!("the password command {} {}", types::visible(program), types::visible(what));
    let mut command = Command::new(program);
    command.args(rest);
    let output = os::child_output(command, &[]).await.map_err(|error| failed(&error.to_string()))?;
    password(output).map_err(failed)
}

/// The line that a program has printed.
fn password(output: Vec<u8>) -> Result<Secret, &'static str> {
    let text = String::from_utf8(output).map_err(|_| "printed bytes that are not UTF-8")?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line {
        "" => Err("printed nothing"),
        line if line.contains(['\n', '\0']) => Err("printed more than one line"),
        line => Ok(Secret::new(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printing(script: &str, lifetime: Duration) -> PasswordCommand {
        let arguments = ["sh", "-c", script, "sh", "{user}", "{host}:{port}/{dbname}"];
        PasswordCommand::new(arguments.map(str::to_owned).to_vec(), lifetime)
    }

    async fn printed(script: &str) -> Result<String, String> {
        let options = ConnectOptions::parse("postgresql://anna@db.example.com:6543/shop").unwrap();
        let command = printing(script, Duration::from_secs(60));
        let password = command.password(&options, &options.addresses[0]).await;
        password.map(|password| password.expose().to_owned())
    }

    #[tokio::test]
    async fn a_password_is_one_line_of_a_program_that_succeeded() {
        assert_eq!(printed("echo \"$1 at $2\"").await.unwrap(), "anna at db.example.com:6543/shop");
        assert_eq!(printed("printf 'a b\\r\\n'").await.unwrap(), "a b");
        for (script, says) in [
            ("true", "printed nothing"),
            ("echo s3cret; echo s3cret", "printed more than one line"),
            ("head -c 100000 /dev/zero | tr '\\0' s", "more than 64 KiB"),
            ("printf '\\377'", "not UTF-8"),
            ("echo s3cret; printf 'no\\033[31m token\\n' >&2; exit 3", "failed (exit status: 3): no\\u001b[31m token"),
        ] {
            let error = printed(script).await.unwrap_err();
            assert!(error.contains(says) && !error.contains("s3cret"), "{error}");
        }
        let absent = PasswordCommand::new(vec!["/absent".to_owned()], Duration::ZERO);
        let options = ConnectOptions::parse("postgresql://anna@h/d").unwrap();
        let error = absent.password(&options, &options.addresses[0]).await.unwrap_err();
        assert!(error.starts_with("the password command /absent cannot be run: "), "{error}");
    }

    #[test]
    fn a_name_within_a_value_stays_as_it_is() {
        let options = ConnectOptions::parse("postgresql://%7Bdbname%7D@%7Buser%7D:1/%7Bhost%7D").unwrap();
        let arguments = ["{user} {dbname}", "{{host}}:{port}", "{other} { {user", "plain"].map(str::to_owned).to_vec();
        let filled = PasswordCommand::new(arguments, Duration::ZERO).arguments_for(&options, &options.addresses[0]);
        assert_eq!(filled, ["{dbname} {host}", "{{user}}:1", "{other} { {user", "plain"]);
    }

    #[tokio::test]
    async fn a_password_serves_until_its_time_is_over_or_it_is_forgotten() {
        let counter = tempfile::NamedTempFile::new().unwrap();
        let script = format!("echo x >> {0}; wc -l < {0}", counter.path().display());
        let options = ConnectOptions::parse("postgresql://anna@h,i/d").unwrap();
        let [first, second] = [&options.addresses[0], &options.addresses[1]];
        let command = printing(&script, Duration::from_secs(60));
        let printed = async |command: &PasswordCommand, address| {
            command.password(&options, address).await.unwrap().expose().trim().to_owned()
        };
        let before = Instant::now();
        let both = tokio::join!(printed(&command, first), printed(&command, first));
        assert_eq!(both, ("1".to_owned(), "1".to_owned()), "one run for both");
        assert_eq!(printed(&command, second).await, "2", "another server, another password");
        assert!(!command.forget_before(before).await);
        assert_eq!(printed(&command, first).await, "1");
        assert!(command.forget_before(Instant::now()).await);
        assert_eq!(printed(&command, first).await, "3");
        let none = printing(&script, Duration::ZERO);
        assert_eq!((printed(&none, first).await, printed(&none, first).await), ("4".to_owned(), "5".to_owned()));
    }
}
