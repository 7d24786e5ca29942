//! The masks of each caller, by profile and account.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::read::Reader;
use manifest::ToolCatalog;
use types::{AccountId, Mask, MaskKey, MaskedColumn, Masks, ToolResults};

use crate::tool::Call;

/// The masks of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskRule {
    pub schema: String,
    pub table: String,
    pub column: String,
    /// The mask for callers that `profiles` and `accounts` do not name; `None` for no mask.
    pub mask: Option<Mask>,
    /// The masks for callers with these profiles.
    pub profiles: BTreeMap<String, Option<Mask>>,
    /// The masks for these accounts, whatever their profile is.
    pub accounts: BTreeMap<String, Option<Mask>>,
}

impl MaskRule {
    fn of(&self, profile: Option<&str>, account: Option<&str>) -> Option<Mask> {
        let by_account = account.and_then(|account| self.accounts.get(account));
        let by_profile = || profile.and_then(|profile| self.profiles.get(profile));
        by_account.or_else(by_profile).copied().unwrap_or(self.mask)
    }

    /// The column with the strictest mask that any caller has; `None` if no caller has one.
    #[must_use]
    pub fn strictest(&self) -> Option<MaskedColumn> {
        let masks = std::iter::once(&self.mask).chain(self.profiles.values()).chain(self.accounts.values());
        masks.copied().max().flatten().map(|mask| self.masked(mask))
    }

    fn masked(&self, mask: Mask) -> MaskedColumn {
        let (schema, table, column) = (self.schema.clone(), self.table.clone(), self.column.clone());
        MaskedColumn { schema, table, column, mask }
    }
}

/// A profile and an account, each `None` if no rule names it.
type CallerKind = (Option<String>, Option<String>);

#[derive(Debug, Clone, Default)]
pub struct MaskPolicy {
    masks: BTreeMap<CallerKind, Option<Arc<Masks>>>,
    strictest: Option<Arc<Masks>>,
}

impl MaskPolicy {
    /// The policy of these rules. Callers with masks may call `trusted_functions`, whatever these read.
    #[must_use]
    pub fn new(rules: &[MaskRule], trusted_functions: &[(String, String)], key: &MaskKey) -> Self {
        let masks = |columns: Vec<MaskedColumn>| {
            let trusted_functions = trusted_functions.to_vec();
            (!columns.is_empty()).then(|| Arc::new(Masks { trusted_functions, ..Masks::new(columns, key.clone()) }))
        };
        let profiles: BTreeSet<_> = rules.iter().flat_map(|rule| rule.profiles.keys().cloned()).map(Some).collect();
        let accounts: BTreeSet<_> = rules.iter().flat_map(|rule| rule.accounts.keys().cloned()).map(Some).collect();
        let profiles = std::iter::once(None).chain(profiles);
        let accounts: Vec<_> = std::iter::once(None).chain(accounts).collect();
        let callers =
            profiles.flat_map(|profile| accounts.iter().map(move |account| (profile.clone(), account.clone())));
        let by_caller = callers.map(|(profile, account)| {
            let of_caller = |rule: &MaskRule| Some(rule.masked(rule.of(profile.as_deref(), account.as_deref())?));
            let masks = masks(rules.iter().filter_map(of_caller).collect());
            ((profile, account), masks)
        });
        Self { masks: by_caller.collect(), strictest: masks(rules.iter().filter_map(MaskRule::strictest).collect()) }
    }

    /// The policy with what the results of these tools show.
    pub(crate) fn with_results_of(&self, catalog: &ToolCatalog) -> Self {
        let writes = catalog.tools.iter().filter(|tool| tool.access.writes());
        let results = writes.map(|tool| (tool.name.clone(), tool.result_origins().collect()));
        let results: Arc<ToolResults> = Arc::new(results.collect());
        let of = |masks: &Arc<Masks>| Arc::new(Masks { results: Arc::clone(&results), ..masks.as_ref().clone() });
        let masks = self.masks.iter().map(|(caller, masks)| (caller.clone(), masks.as_ref().map(of)));
        Self { masks: masks.collect(), strictest: self.strictest.as_ref().map(of) }
    }

    /// The masks of a caller; `None` if the caller has none.
    #[must_use]
    pub fn of(&self, profile: &str, account: &AccountId) -> Option<&Arc<Masks>> {
        let named = |profile: Option<&str>, account: Option<&str>| {
            self.masks.get(&(profile.map(str::to_owned), account.map(str::to_owned)))
        };
        if self.masks.is_empty() {
            return None;
        }
        let account = Some(account.as_str());
        let found = named(Some(profile), account).or_else(|| named(None, account));
        found.or_else(|| named(Some(profile), None)).or_else(|| named(None, None))?.as_ref()
    }

    /// The reader with the masks of the caller, its role and its claims. `is_declared` as in [`Reader::with_masks`].
    pub(crate) fn reader<'a>(&self, reader: &'a Reader, call: &Call, is_declared: bool) -> Cow<'a, Reader> {
        let context = &call.principal.context;
        let reader = if context.is_empty() { Cow::Borrowed(reader) } else { Cow::Owned(reader.with_context(context)) };
        match self.of(&call.profile, &call.principal.account_id) {
            Some(masks) => Cow::Owned(reader.with_masks(Arc::clone(masks), is_declared)),
            None => reader,
        }
    }

    /// The masks of every kind of caller.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Masks>> {
        self.masks.values().flatten()
    }

    /// Every column that is masked for some caller, with its strictest mask.
    #[must_use]
    pub fn strictest(&self) -> Option<&Arc<Masks>> {
        self.strictest.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use types::Secret;

    use super::*;

    fn rule(column: &str, mask: Option<Mask>) -> MaskRule {
        let of = |name: &str| name.to_owned();
        let (profiles, accounts) = (BTreeMap::new(), BTreeMap::new());
        MaskRule { schema: of("s"), table: of("t"), column: of(column), mask, profiles, accounts }
    }

    fn policy(rules: &[MaskRule]) -> MaskPolicy {
        MaskPolicy::new(rules, &[], &MaskKey::new(Secret::new("key")))
    }

    #[test]
    fn the_account_goes_before_the_profile_and_the_profile_before_the_rest() {
        let mut email = rule("email", Some(Mask::Partial));
        email.profiles.insert("support".to_owned(), Some(Mask::Hash));
        email.profiles.insert("admin".to_owned(), None);
        email.accounts.insert("auditor".to_owned(), None);
        let policy = policy(&[email, rule("card", Some(Mask::Null))]);
        let mask = |profile: &str, account: &str, column: &str| {
            policy.of(profile, &AccountId::new(account).unwrap()).and_then(|masks| masks.of("s", "t", column))
        };
        for (profile, account, expected) in [
            ("write", "a", Some(Mask::Partial)),
            ("support", "a", Some(Mask::Hash)),
            ("admin", "a", None),
            ("write", "auditor", None),
            ("support", "auditor", None),
        ] {
            assert_eq!(mask(profile, account, "email"), expected, "{profile} {account}");
            assert_eq!(mask(profile, account, "card"), Some(Mask::Null), "{profile} {account}");
        }
    }

    #[test]
    fn a_caller_without_masks_has_none_and_the_strictest_mask_counts_for_all() {
        let mut email = rule("email", None);
        email.profiles.insert("support".to_owned(), Some(Mask::Hash));
        email.accounts.insert("guest".to_owned(), Some(Mask::Refuse));
        let policy = policy(&[email]);
        assert!(policy.of("write", &AccountId::default()).is_none());
        assert!(policy.of("support", &AccountId::default()).is_some());
        assert_eq!(policy.strictest().and_then(|masks| masks.of("s", "t", "email")), Some(Mask::Refuse));
        assert!(MaskPolicy::default().of("write", &AccountId::default()).is_none());
    }
}
