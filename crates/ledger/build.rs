//! Rebuilds when a migration is added: the macro that embeds them only sees those that were there.
fn main() {
    let mut stdout = std::io::stdout();
    let _ = std::io::Write::write_all(&mut stdout, b"cargo::rerun-if-changed=../../migrations\n");
}
