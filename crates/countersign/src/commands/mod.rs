//! The commands and their shared arguments.

pub(crate) mod audit;
pub(crate) mod bootstrap;
pub(crate) mod check;
pub(crate) mod cli;
pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod freeze;
pub(crate) mod front_ends;
pub(crate) mod generated;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod keys;
pub(crate) mod proposals;
pub(crate) mod scaffold;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod several;
pub(crate) mod token;
pub(crate) mod track;
pub(crate) mod try_tool;
pub(crate) mod undo;
pub(crate) mod uninstall;
pub(crate) mod words;
