//! The container image of a release, as far as it can be tested without a container engine: the file system that the
//! Containerfile describes is put together, and its entry point runs there. The base image cannot be had here: this machine's
//! libraries take the place of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde_json::json;
use testkit::{Proxy, RawStdioServer, database, external};
use tokio::process::Command;

use super::{COMMIT, clean_command, packages, succeed};

/// The user of the base image, `nonroot`.
const USER: u32 = 65_532;

/// Where the socket of PostgreSQL is in the file system of the image.
const SOCKET_FOLDER: &str = "/run/postgresql";

/// Makes the root read-only, with the folder of a socket in it, and runs a program there. Its arguments: the root, the folder
/// of the socket, an option of chroot, the program.
const RUN: &str = r#"mount --bind "$1" "$1" && mount --bind "$2" "$1/run/postgresql" &&
    mount -o remount,bind,ro "$1" && exec chroot "$3" "$1" "$4" serve"#;

/// The instructions of a Containerfile: their names with their arguments.
fn instructions(text: &str) -> Vec<(&str, &str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' ')).collect()
}

fn copy(from: &Path, root: &Path, to: &str) {
    let to = root.join(to.trim_start_matches('/'));
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap();
}

/// Copies what the dynamic linker loads for a program, which the base image has.
async fn add_libraries(program: &Path, root: &Path) {
    let home = tempfile::tempdir().unwrap();
    let listed = succeed(clean_command("ldd", home.path()).arg(program)).await;
    let paths = listed.split(|character: char| character.is_ascii_whitespace()).filter(|word| word.starts_with('/'));
    let mut count = 0;
    for path in paths {
        copy(Path::new(path), root, path);
        count += 1;
    }
    assert!(count > 1, "{listed}");
}

fn is_root() -> bool {
    geteuid().is_root()
}

/// A command that may mount, in namespaces of its own.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_image_serves_without_rights_from_a_root_that_is_read_only() {
    if !unshare().arg("true").output().await.is_ok_and(|output| output.status.success()) {
        external::skip_unprivileged("a mount namespace needs a privilege that this machine does not give");
        return;
    }
    let packages = packages();
    let root = tempfile::tempdir().unwrap();
    let text = packages.text("container/Containerfile");
    let mut entrypoint = None;
    let cpu = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    for (name, arguments) in instructions(&text) {
        match name {
            "COPY" => {
                let (from, to) = arguments.split_once(' ').unwrap();
                let from = packages.path("out/container").join(from.replace("${TARGETARCH}", cpu));
                if std::fs::metadata(&from).unwrap().permissions().mode() & 0o111 != 0 {
                    add_libraries(&from, root.path()).await;
                }
                copy(&from, root.path(), to);
            }
            "ENTRYPOINT" => entrypoint = Some(serde_json::from_str::<[String; 1]>(arguments).unwrap()),
            "FROM" => assert!(arguments.ends_with(":nonroot"), "{arguments}"),
            _ => {}
        }
    }
    let [entrypoint] = entrypoint.expect("an entry point");
    std::fs::create_dir_all(root.path().join(SOCKET_FOLDER.trim_start_matches('/'))).unwrap();

    let db = database().await;
    // The cluster's own socket is not for other users.
    let proxy = Proxy::before(&db);
    let sockets = super::files_of(proxy.folder());
    for path in [root.path(), proxy.folder()].into_iter().chain(sockets.iter().map(PathBuf::as_path)) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let url = proxy.url().replace(proxy.folder().to_str().unwrap(), SOCKET_FOLDER);
    let user = format!("--userspec={USER}:{USER}");
    let command = || {
        let mut command = unshare();
        // Without root, the user of this test is the only one that there is in the namespace.
        let options = if is_root() { user.as_str() } else { "--groups=" };
        command.args(["sh", "-c", RUN, "sh"]).arg(root.path()).arg(proxy.folder());
        command.args([options, &entrypoint]).kill_on_drop(true);
        command.env("DATABASE_URL", &url).env("COUNTERSIGN_LOG", "warn");
        command
    };
    let mut server = RawStdioServer::connected(command, "2025-11-25").await;
    let answer = server.call("query_database", json!({"query": "select 6 * 7 as answer"})).await;
    assert_eq!(answer["data"]["rows"], json!([{"answer": 42}]), "{answer}");
    // One process from unshare to the server.
    let of_process = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", server.pid())).unwrap();
    let (status, mounts) = (of_process("status"), of_process("mountinfo"));
    let is_at_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    let mount = mounts.lines().rfind(is_at_root).expect("a root");
    assert!(mount.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{mount}");
    if is_root() {
        assert!(status.lines().any(|line| line == format!("Uid:\t{USER}\t{USER}\t{USER}\t{USER}")), "{status}");
    }
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    assert!(!is_root() || effective.bytes().all(|digit| digit == b'0'), "{effective}");
    assert!(server.close().await);
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_images_have_the_labels_of_the_open_container_initiative_and_of_the_mcp_registry() {
    let from_source = std::fs::read_to_string(testkit::repository().join("Containerfile")).unwrap();
    let of_release = packages().text("container/Containerfile");
    let [from_source, of_release] = [&from_source, &of_release].map(|text| {
        let labels = instructions(text).into_iter().filter(|(name, _)| *name == "LABEL");
        labels.map(|(_, label)| label.to_owned()).collect::<Vec<String>>()
    });
    let revision = format!("org.opencontainers.image.revision=\"{COMMIT}\"");
    assert_eq!(of_release, [from_source.as_slice(), &[revision]].concat());
    let name = format!("io.modelcontextprotocol.server.name=\"{}\"", packaging::project::MCP_NAME);
    assert!(from_source.contains(&name), "{from_source:?}");
}
