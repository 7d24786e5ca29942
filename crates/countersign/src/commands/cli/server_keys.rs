//! All settings of a server, as arguments of a command.

use clap::Args;

use crate::settings::{
    ConnectionKeys, HttpKeys, Keys, LimitKeys, ManifestKeys, NotifyKeys, ReadsKeys, ServeKeys, SigningKeys, WriteKeys,
};

/// Everything that is configured of a server.
#[derive(Debug, Args)]
pub(super) struct ServerKeys {
    #[command(flatten)]
    manifests: ManifestKeys,
    #[command(flatten)]
    serve: ServeKeys,
    #[command(flatten)]
    write: WriteKeys,
    #[command(flatten)]
    reads: ReadsKeys,
    #[command(flatten)]
    signing: SigningKeys,
    #[command(flatten)]
    notify: NotifyKeys,
    #[command(flatten)]
    http: HttpKeys,
    #[command(flatten)]
    limits: LimitKeys,
    #[command(flatten)]
    connection: ConnectionKeys,
}

impl ServerKeys {
    /// Puts the keys into their groups.
    pub(super) fn fill(&self, keys: &mut Keys) {
        self.connection.fill(keys);
        (keys.manifests, keys.serve) = (self.manifests.clone(), self.serve.clone());
        (keys.write, keys.reads) = (self.write.clone(), self.reads.clone());
        (keys.signing, keys.notify) = (self.signing.clone(), self.notify.clone());
        (keys.http, keys.limits) = (self.http.clone(), self.limits.clone());
    }
}
