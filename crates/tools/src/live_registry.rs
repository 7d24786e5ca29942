//! The currently served tools, which can change while calls run.
//!
//! ```text
//! LiveRegistry ── replace ──> ProfileRegistries (one registry per profile) <── ProfileView (view of one server)
//! ```
//! A call gets its registry once and keeps it, so a change does not affect running calls.

use std::collections::HashMap;
use std::sync::Arc;

use ledger::ExecutorRegistry;
use tokio::sync::watch;

use crate::profile::Profile;
use crate::registry::Registry;
use crate::tool::ToolLookup;

/// The registries of all profiles, which are built and replaced together.
#[derive(Debug, Default)]
pub struct ProfileRegistries {
    by_profile: HashMap<String, Arc<Registry>>,
    /// The executors of all write tools.
    executors: Option<Arc<ExecutorRegistry>>,
    /// The tools that do not fit the database, by name, each with the reason.
    outdated: Arc<[(String, String)]>,
}

impl ProfileRegistries {
    /// Builds the registries of these profiles from the registry of all tools.
    #[must_use]
    pub fn new(all: &Registry, profiles: &[Profile]) -> Self {
        let registry = |profile: &Profile| (profile.name.clone(), Arc::new(all.narrowed(profile)));
        let executors = Some(Arc::clone(all.executors()));
        let outdated = all.outdated().map(|tool| (tool.name.clone(), tool.failure.message.clone())).collect();
        Self { by_profile: profiles.iter().map(registry).collect(), executors, outdated }
    }

    #[must_use]
    pub fn get(&self, profile: &str) -> Option<&Arc<Registry>> {
        self.by_profile.get(profile)
    }
}

/// The currently served tools. All servers of a process share them.
#[derive(Debug, Clone)]
pub struct LiveRegistry {
    registries: watch::Sender<Arc<ProfileRegistries>>,
}

impl LiveRegistry {
    /// A live registry with these tools.
    #[must_use]
    pub fn new(registries: ProfileRegistries) -> Self {
        Self { registries: watch::Sender::new(Arc::new(registries)) }
    }

    /// Replaces the served registries. This does not affect running calls.
    pub fn replace(&self, registries: ProfileRegistries) {
        self.registries.send_replace(Arc::new(registries));
    }

    /// The executors of all currently served write tools, in every profile.
    #[must_use]
    pub fn executors(&self) -> Option<Arc<ExecutorRegistry>> {
        self.registries.borrow().executors.clone()
    }

    /// The tools that are not served because they do not fit the database, by name, each with the reason.
    #[must_use]
    pub fn outdated(&self) -> Arc<[(String, String)]> {
        Arc::clone(&self.registries.borrow().outdated)
    }

    /// The view of a server with this profile, which follows every change.
    #[must_use]
    pub fn of_profile(&self, profile: &str) -> ProfileView {
        let mut registries = self.registries.subscribe();
        let seen = registries.borrow_and_update().get(profile).cloned().unwrap_or_default();
        ProfileView { profile: profile.to_owned(), registries, seen }
    }
}

/// The tools of one profile. A profile that no longer exists has no tools.
#[derive(Debug, Clone)]
pub struct ProfileView {
    profile: String,
    registries: watch::Receiver<Arc<ProfileRegistries>>,
    /// The registry that [`ProfileView::changed`] compares with.
    seen: Arc<Registry>,
}

impl ProfileView {
    /// Current registry of the profile.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.registries.borrow().get(&self.profile).cloned().unwrap_or_default()
    }

    /// Waits until the tools or resources listed to clients differ from those at the last change (or at the start).
    /// Returns `None` if they can no longer change.
    pub async fn changed(&mut self) -> Option<ListChange> {
        while self.registries.changed().await.is_ok() {
            let now = self.registry();
            let change = ListChange {
                tools: !now.infos().eq(self.seen.infos()),
                resources: now.resources().change_key() != self.seen.resources().change_key(),
            };
            if change.tools || change.resources {
                self.seen = now;
                return Some(change);
            }
        }
        None
    }
}

/// Change that clients must be notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListChange {
    /// The list of tools changed.
    pub tools: bool,
    /// The resources changed, or the operator's notes in them.
    pub resources: bool,
}
