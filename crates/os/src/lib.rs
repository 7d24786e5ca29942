//! What differs between operating systems, as far as several crates need it: who may read a file, names on the disk,
//! the user of this process. Also the output of programs that an operator has named (`child_output`).
//!
//! Windows has no modes of files, and no calls for some of this. Each function says what it does there.
//!
//! Elsewhere a module has a twin (`no_unix_socket`, `no_ssh_tunnel`, `no_cluster`) whose types have no values, so the
//! code around it is the same on both systems, without `cfg` in the middle of functions.

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod system;

mod child_output;

pub use child_output::{ChildError, child_output};
pub use system::{
    FolderLock, copy_owner_and_mode, create_private_folders, discard_typed_input, is_owned_by_root, is_program, mode,
    permissions, private, sync_folder, user_id, user_name,
};
