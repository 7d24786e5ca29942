//! The log of a ledger as a transparency log: a Merkle tree (RFC 6962) with signed checkpoints, proofs and bundles in
//! the formats of C2SP. `docs/reference/log-format.md` specifies the formats byte by byte. Entry points:
//! [`append_entry`], [`TileSet`], [`Checkpoint`], [`verify_bundle`]. This crate knows no database and no network.
//!
//! ```text
//! entry                the text of a leaf
//! hash, tree           hashes, roots, and the verification of proofs
//! tile                 the tree in pieces of 256 hashes, as stored in a database or a folder
//! checkpoint           the root and size of the tree at a moment
//! key, signature, note keys, signatures, and the signed texts that they make
//! witness              requests to witnesses
//! policy               which signatures suffice
//! proof                the proof of one entry
//! bundle               a whole log as a folder. The only module that reads or writes files
//! ```

mod bundle;
mod checkpoint;
mod entry;
mod hash;
mod key;
mod note;
mod policy;
mod proof;
mod signature;
mod tile;
mod tree;
mod witness;

pub use bundle::{
    BundleError, BundleWriter, Finding, FindingCode, INCOMPLETE_CHECKPOINT, Report, verify_bundle, verify_proof,
};
pub use checkpoint::{Checkpoint, CheckpointError};
pub use entry::{Entry, EntryError, MAX_ENTRY_BYTES, PART_PREFIX, append_entry, split_entries};
pub use hash::Hash;
pub use key::{KeyError, KeyKind, SigningKey, VerifierKey};
pub use note::{NoteError, SignedNote};
pub use policy::{Policy, PolicyError, Trust, TrustError};
pub use proof::{EntryProof, ProofTextError};
pub use signature::{Signature, SignatureError};
pub use tile::{
    MissingTileError, TileId, TileSet, tiles_for_consistency, tiles_for_inclusion, tiles_for_root, tiles_of,
};
pub use tree::{Frontier, ProofError, leaf_hash, node_hash, root_of, verify_consistency, verify_inclusion};
pub use witness::CheckpointRequest;
