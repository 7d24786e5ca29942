//! Completions and man pages, as a user installs and uses them.

use super::sample;
use super::shop::Shop;

/// What bash offers for the last of these words.
fn completed(words: &str) -> String {
    let words = format!("COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))");
    let complete = "_countersign countersign \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"";
    format!("{words}; COMPREPLY=(); {complete}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_complete_and_man_pages_have_the_options_of_front_ends() {
    let shop = Shop::new().await;
    shop.shell(&sample("docs/setup/install.md", "mkdir -p"), "").await;
    let source = "source ~/.local/share/bash-completion/completions/countersign";
    for (words, offered) in [
        ("countersign inst", vec!["install"]),
        ("countersign query --stream", vec!["--stream-rows"]),
        ("countersign pipe --inline-max-r", vec!["--inline-max-rows"]),
        ("countersign psql --batch-b", vec!["--batch-bytes"]),
        ("countersign install --client claude", vec!["claude-desktop", "claude-code"]),
        ("countersign audit li", vec!["list"]),
    ] {
        let found = shop.shell(&format!("{source}; {}", completed(words)), "").await;
        assert_eq!(found.lines().collect::<Vec<_>>(), offered, "{words}");
    }
    let page = |command: &str| {
        let path = shop.folder().join(format!(".local/share/man/man1/countersign-{command}.1"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).replace("\\-", "-")
    };
    for (command, texts) in [
        ("query", ["--stream-rows", "--sql-file"]),
        ("pipe", ["--inline-max-rows", "--dsn-secret"]),
        ("psql", ["-c", "--batch-bytes"]),
        ("install", ["--client", "--token-file"]),
        ("audit-list", ["--limit", "--json"]),
    ] {
        for text in texts {
            assert!(page(command).contains(text), "{command}: {text}");
        }
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = shop.shell(&format!("countersign completions {shell}"), "").await;
        assert!(script.contains("stream-rows") && script.contains("token-file"), "{shell}");
    }
}
