//! The currently served tools, which can change while calls run.
//!
//! ```text
//! LiveDatabase ── replace ──> LiveRegistry ──> ProfileView (the tools of one caller)
//!   one per database            the toolsets of all databases, by profile
//! ```
//! A call gets its registry once and keeps it, so a change does not affect running calls.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ledger::ExecutorRegistry;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use types::{DatabaseLabel, DatabaseName};

use crate::call_database::CallDatabase;
use crate::metrics::Metrics;
use crate::profile::Profile;
use crate::registry::{NamedToolset, Registry, taking_a_database};
use crate::services::Services;
use crate::toolset::{Toolset, Unavailable};

/// The toolsets of a database for all profiles, which are built and replaced together.
#[derive(Debug, Default)]
pub struct ProfileToolsets {
    by_profile: HashMap<String, Arc<Toolset>>,
    /// The executors of all write tools.
    executors: Option<Arc<ExecutorRegistry>>,
    /// The tools that do not fit the database, by name, each with the reason.
    outdated: Vec<(String, String)>,
    /// The names of the tools of the manifests, whether they fit the database or not.
    declared: BTreeSet<String>,
    /// Why the database cannot be reached; `None` once it was.
    unavailable: Option<Unavailable>,
}

impl ProfileToolsets {
    /// Builds the toolsets of these profiles from all tools of the database `name`. A profile that does not reach the
    /// database has none.
    #[must_use]
    pub fn new(all: &Toolset, profiles: &[Profile], name: Option<&DatabaseName>) -> Self {
        let reaching = profiles.iter().filter(|profile| profile.reaches(name));
        let toolset = |profile: &Profile| (profile.name.clone(), Arc::new(all.narrowed(profile)));
        Self {
            by_profile: reaching.map(toolset).collect(),
            executors: Some(Arc::clone(all.executors())),
            outdated: all.outdated().map(|tool| (tool.name.clone(), tool.failure.message.clone())).collect(),
            declared: all.declared().clone(),
            unavailable: all.unavailable_because().cloned(),
        }
    }

    #[must_use]
    pub fn get(&self, profile: &str) -> Option<&Arc<Toolset>> {
        self.by_profile.get(profile)
    }
}

/// Which tools a caller sees.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    /// The name of the profile. A profile that does not exist has no tools.
    pub profile: String,
    /// The databases that the caller reaches; `None` for all that its profile reaches.
    pub databases: Option<Vec<DatabaseName>>,
}

impl View {
    /// Everything in a profile.
    #[must_use]
    pub fn of_profile(profile: impl Into<String>) -> Self {
        Self { profile: profile.into(), databases: None }
    }

    fn reaches(&self, label: Option<&DatabaseLabel>) -> bool {
        match (&self.databases, label) {
            (Some(names), Some(label)) => names.contains(&label.name),
            _ => true,
        }
    }
}

#[derive(Debug, Clone)]
struct ServedDatabase {
    label: Option<DatabaseLabel>,
    toolsets: Arc<ProfileToolsets>,
    /// `None` until the database was reached.
    services: Option<Services>,
}

impl ServedDatabase {
    async fn check(&self, time: Duration) -> DatabaseHealth {
        let database = self.label.as_ref().map(|label| label.name.clone());
        let Some(services) = &self.services else {
            let why = self.toolsets.unavailable.as_ref().map(|failure| failure.borrow().message.clone());
            return DatabaseHealth {
                database,
                error: Some(why.unwrap_or_else(|| "it was not reached yet".to_owned())),
            };
        };
        let deadline = Instant::now() + time;
        let answered = timeout_at(deadline, services.ledger.ping(deadline, services.has_ledger)).await;
        let error = match answered {
            Ok(Ok(())) => None,
            Ok(Err(reason)) if Instant::now() < deadline => Some(reason),
            _ => Some(format!("the database did not answer within {} s", time.as_secs())),
        };
        DatabaseHealth { database, error }
    }
}

/// The tools of all databases at one time, and the registries that were made of them.
#[derive(Debug, Default)]
struct Snapshot {
    databases: Vec<ServedDatabase>,
    registries: Mutex<HashMap<View, Arc<Registry>>>,
}

impl Snapshot {
    fn new(databases: Vec<ServedDatabase>) -> Self {
        Self { databases, registries: Mutex::default() }
    }

    fn registry(&self, view: &View) -> Arc<Registry> {
        let mut registries = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registry) = registries.get(view) {
            return Arc::clone(registry);
        }
        let registry = Arc::new(self.build(view));
        registries.insert(view.clone(), Arc::clone(&registry));
        registry
    }

    fn build(&self, view: &View) -> Registry {
        let declared = self.databases.iter().map(|database| &database.toolsets.declared);
        let taking = Arc::new(taking_a_database(declared));
        let reached = self.databases.iter().filter(|database| view.reaches(database.label.as_ref()));
        let toolset = |ServedDatabase { label, toolsets, .. }: &ServedDatabase| {
            let database = label.clone().map(|label| Arc::new(CallDatabase::new(label, Arc::clone(&taking))));
            Some(NamedToolset { database, tools: Arc::clone(toolsets.get(&view.profile)?) })
        };
        Registry::new(reached.filter_map(toolset).collect())
    }
}

/// Whether a database answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseHealth {
    /// `None` if the server has one database without a name.
    pub database: Option<DatabaseName>,
    /// The reason why it does not.
    pub error: Option<String>,
}

/// A tool that is not served because it does not fit its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotServed {
    /// `None` if the server has one database without a name.
    pub database: Option<DatabaseName>,
    pub tool: String,
    pub reason: String,
}

/// The currently served tools. All sessions of a process share them.
#[derive(Debug, Clone)]
pub struct LiveRegistry {
    current: watch::Sender<Arc<Snapshot>>,
}

impl LiveRegistry {
    /// A registry of these databases. One without a label is the only one.
    #[must_use]
    pub fn new(databases: impl IntoIterator<Item = (Option<DatabaseLabel>, ProfileToolsets)>) -> Self {
        let served = |(label, toolsets)| ServedDatabase { label, toolsets: Arc::new(toolsets), services: None };
        let snapshot = Snapshot::new(databases.into_iter().map(served).collect());
        Self { current: watch::Sender::new(Arc::new(snapshot)) }
    }

    /// The database at this place, to change what it serves.
    #[must_use]
    pub fn database(&self, index: usize) -> LiveDatabase {
        LiveDatabase { registry: self.clone(), index }
    }

    /// The tools that are not served because they do not fit their database.
    #[must_use]
    pub fn not_served(&self) -> Vec<NotServed> {
        let snapshot = Arc::clone(&self.current.borrow());
        let of_database = |ServedDatabase { label, toolsets, .. }: &ServedDatabase| {
            let database = label.as_ref().map(|label| label.name.clone());
            let not_served = |(tool, reason): &(String, String)| NotServed {
                database: database.clone(),
                tool: tool.clone(),
                reason: reason.clone(),
            };
            toolsets.outdated.iter().map(not_served).collect::<Vec<_>>()
        };
        snapshot.databases.iter().flat_map(of_database).collect()
    }

    /// Asks every database whether it answers within this time.
    pub async fn check(&self, time: Duration) -> Vec<DatabaseHealth> {
        let snapshot = Arc::clone(&self.current.borrow());
        join_all(snapshot.databases.iter().map(|database| database.check(time))).await
    }

    /// The metrics page, with the current state of the pools and ledgers of the databases that were reached.
    pub async fn render_metrics(&self, metrics: &Metrics) -> String {
        let snapshot = Arc::clone(&self.current.borrow());
        let reached: Vec<Services> =
            snapshot.databases.iter().filter_map(|database| database.services.clone()).collect();
        metrics.render(&join_all(reached.iter().map(Services::gauges)).await)
    }

    /// The tools of a caller with this view, which follow every change.
    #[must_use]
    pub fn view(&self, view: View) -> ProfileView {
        let mut current = self.current.subscribe();
        let seen = current.borrow_and_update().registry(&view);
        ProfileView { view, current, seen }
    }
}

/// One database of a [`LiveRegistry`].
#[derive(Debug, Clone)]
pub struct LiveDatabase {
    registry: LiveRegistry,
    index: usize,
}

impl LiveDatabase {
    /// Replaces the served tools of this database. This does not affect running calls.
    pub fn replace(&self, toolsets: ProfileToolsets) {
        self.update(|database| database.toolsets = Arc::new(toolsets));
    }

    /// Serves these tools, with their services, once the database was reached.
    pub fn open(&self, toolsets: ProfileToolsets, services: Services) {
        self.update(|database| {
            database.toolsets = Arc::new(toolsets);
            database.services = Some(services);
        });
    }

    fn update(&self, change: impl FnOnce(&mut ServedDatabase)) {
        self.registry.current.send_modify(|snapshot| {
            let mut databases = snapshot.databases.clone();
            databases.get_mut(self.index).map(change);
            *snapshot = Arc::new(Snapshot::new(databases));
        });
    }

    /// The executors of all currently served write tools, in every profile.
    #[must_use]
    pub fn executors(&self) -> Option<Arc<ExecutorRegistry>> {
        self.registry.current.borrow().databases.get(self.index)?.toolsets.executors.clone()
    }
}

/// The tools of a caller.
#[derive(Debug, Clone)]
pub struct ProfileView {
    view: View,
    current: watch::Receiver<Arc<Snapshot>>,
    /// The registry that [`ProfileView::changed`] compares with.
    seen: Arc<Registry>,
}

impl ProfileView {
    /// The current tools.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.current.borrow().registry(&self.view)
    }

    /// Waits until the tools or resources listed to clients differ from those at the last change (or at the start).
    /// Returns `None` if they can no longer change.
    pub async fn changed(&mut self) -> Option<ListChange> {
        while self.current.changed().await.is_ok() {
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
