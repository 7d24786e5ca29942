//! The tools that are served now, and their change while calls run.
//!
//! ```text
//! Toolbox ── put ──> Shelves (one registry a profile) <── Toolset (what one server of a profile sees)
//! ```
//! A call takes its registry once and keeps it: it ends with the tools that it began with.

use std::collections::HashMap;
use std::sync::Arc;

use ledger::ExecutorRegistry;
use tokio::sync::watch;

use crate::profile::Profile;
use crate::registry::Registry;
use crate::tool::ToolLookup;

/// The registries of all profiles, made together: they change together or not at all.
#[derive(Debug, Default)]
pub struct ProfileRegistries {
    by_profile: HashMap<String, Arc<Registry>>,
    /// Of all tools.
    executors: Option<Arc<ExecutorRegistry>>,
}

impl ProfileRegistries {
    /// What each of these profiles sees of all tools.
    #[must_use]
    pub fn new(all: &Registry, profiles: &[Profile]) -> Self {
        let shelf = |profile: &Profile| (profile.name.clone(), Arc::new(all.narrowed(profile)));
        let executors = Some(Arc::clone(all.executors()));
        Self { by_profile: profiles.iter().map(shelf).collect(), executors }
    }

    /// The tools of a profile, if there is one of this name.
    #[must_use]
    pub fn get(&self, profile: &str) -> Option<&Arc<Registry>> {
        self.by_profile.get(profile)
    }
}

/// Holds the tools that are served; shared by every server of a process.
#[derive(Debug, Clone)]
pub struct LiveRegistry {
    shelves: watch::Sender<Arc<ProfileRegistries>>,
}

impl LiveRegistry {
    /// A toolbox with these in it.
    #[must_use]
    pub fn new(shelves: ProfileRegistries) -> Self {
        Self { shelves: watch::Sender::new(Arc::new(shelves)) }
    }

    /// Puts these in the place of what was there. Calls that run are not touched.
    pub fn replace(&self, shelves: ProfileRegistries) {
        self.shelves.send_replace(Arc::new(shelves));
    }

    /// What carries out the write tools that are served now, in whatever profile.
    #[must_use]
    pub fn executors(&self) -> Option<Arc<ExecutorRegistry>> {
        self.shelves.borrow().executors.clone()
    }

    /// What a server of this profile sees, now and after each change.
    #[must_use]
    pub fn of_profile(&self, profile: &str) -> ProfileView {
        let mut shelves = self.shelves.subscribe();
        let seen = shelves.borrow_and_update().get(profile).cloned().unwrap_or_default();
        ProfileView { profile: profile.to_owned(), shelves, seen }
    }
}

/// The tools of one profile. A profile that is gone has none.
#[derive(Debug, Clone)]
pub struct ProfileView {
    profile: String,
    shelves: watch::Receiver<Arc<ProfileRegistries>>,
    /// What [`ProfileView::changed`] compares with.
    seen: Arc<Registry>,
}

impl ProfileView {
    /// The tools as they are now.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.shelves.borrow().get(&self.profile).cloned().unwrap_or_default()
    }

    /// Waits until what clients are told of tools or resources is another than at the last change (or at the beginning).
    /// `None` if that can no longer happen.
    pub async fn changed(&mut self) -> Option<ListChange> {
        while self.shelves.changed().await.is_ok() {
            let now = self.registry();
            let change = ListChange {
                tools: !now.infos().eq(self.seen.infos()),
                resources: now.resources().words() != self.seen.resources().words(),
            };
            if change.tools || change.resources {
                self.seen = now;
                return Some(change);
            }
        }
        None
    }
}

/// What clients must be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListChange {
    /// The list of tools is another.
    pub tools: bool,
    /// There are other resources, or the operator's notes in them have changed.
    pub resources: bool,
}
