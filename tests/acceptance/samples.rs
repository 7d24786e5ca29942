//! Every sample of README.md, CONTRIBUTING.md and docs/ is run by a test. A sample is a fenced block; diagrams are
//! blocks of the kind `text`.

mod clients;
mod commands;
mod database_health;
mod databases;
mod generated;
mod reads;
mod shop;
mod tutorial;

use std::collections::BTreeSet;
use std::fs;

use testkit::repository;

use crate::pages::pages;

/// The page, how the sample begins, and the test that runs it.
const RUN_BY: &[(&str, &str, &str)] = &[
    ("README.md", "cargo run -- demo", "the_demo_is_what_the_readme_starts"),
    ("README.md", "{\"success\": true,", "the_readme_from_init_to_the_first_write_and_back"),
    ("README.md", "countersign install --client cursor --name reads", "the_command_of_the_readme_lets_an_agent_read"),
    ("README.md", "countersign init --schema shop", "the_two_commands_of_the_readme_let_an_agent_propose_a_write"),
    ("README.md", "export DATABASE_URL=postgresql://me", "the_readme_from_init_to_the_first_write_and_back"),
    (
        "README.md",
        "countersign install --client cursor --name shop --manifest",
        "the_readme_from_init_to_the_first_write_and_back",
    ),
    ("README.md", "countersign query --dbname shop", "the_readme_from_init_to_the_first_write_and_back"),
    ("README.md", "name = \"shop\"", "the_readme_from_init_to_the_first_write_and_back"),
    ("docs/tutorial.md", "create schema shop", "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified"),
    ("docs/tutorial.md", "$ export DATABASE_URL", "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified"),
    ("docs/tutorial.md", "$ countersign install", "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified"),
    (
        "docs/tutorial.md",
        "{\"name\": \"query_database\"",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    (
        "docs/tutorial.md",
        "{\"name\": \"execute_sql\"",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    (
        "docs/tutorial.md",
        "$ countersign proposals approve 2f7091b7",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    (
        "docs/tutorial.md",
        "$ countersign audit list",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    (
        "docs/tutorial.md",
        "$ countersign scaffold",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    (
        "docs/tutorial.md",
        "{\"name\": \"delete_orders\"",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    (
        "docs/tutorial.md",
        "$ countersign proposals list",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    ("docs/tutorial.md", "$ countersign undo", "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified"),
    (
        "docs/tutorial.md",
        "$ countersign audit seal",
        "the_tutorial_leads_to_a_write_that_is_approved_undone_and_verified",
    ),
    ("CONTRIBUTING.md", "cargo build", "the_demo_is_what_the_readme_starts"),
    (
        "packaging/README.md",
        "packaging/reproduce build",
        "the_command_of_the_page_makes_every_package_that_the_page_lists",
    ),
    ("docs/topics/agent-cli.md", "$ countersign query", "the_query_of_the_page_on_the_command_line"),
    ("docs/topics/database-health.md", "create extension if", "the_login_of_the_page_reads_what_the_tools_show"),
    ("docs/topics/database-health.md", "# countersign.toml", "the_login_of_the_page_reads_what_the_tools_show"),
    ("docs/topics/several-databases.md", "psql -q -d shop -c", "a_write_to_staging_is_undone_as_the_page_says"),
    ("docs/topics/several-databases.md", "# countersign.toml", "a_write_to_staging_is_undone_as_the_page_says"),
    (
        "docs/topics/several-databases.md",
        "{\"name\": \"set_order_status\"",
        "a_write_to_staging_is_undone_as_the_page_says",
    ),
    ("docs/topics/several-databases.md", "$ countersign audit list", "a_write_to_staging_is_undone_as_the_page_says"),
    ("docs/topics/audit.md", "select m.admitted_at", "statements_for_auditors"),
    ("docs/topics/audit.md", "countersign audit list", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/topics/audit.md", "select at, login", "statements_for_auditors"),
    ("docs/topics/verifying.md", "$ countersign audit seal", "the_commands_of_auditors_print_what_the_page_shows"),
    ("docs/topics/verifying.md", "$ cp -r bundle", "the_commands_of_auditors_print_what_the_page_shows"),
    ("docs/topics/console.md", "create role console login", "a_person_logs_in_to_the_console_as_the_page_says"),
    ("docs/topics/console.md", "create role console_operator", "a_person_logs_in_to_the_console_as_the_page_says"),
    ("docs/topics/console.md", "$ DATABASE_URL", "a_person_logs_in_to_the_console_as_the_page_says"),
    ("docs/topics/console.md", "[console]", "the_sample_of_the_page_signs_people_in"),
    (
        "docs/topics/verifying.md",
        "$ countersign audit witness add",
        "the_commands_of_witnesses_print_what_the_page_shows",
    ),
    ("docs/setup/clients.md", "countersign install --client cursor", "the_commands_of_the_page_install_and_uninstall"),
    (
        "docs/setup/clients.md",
        "countersign install --client claude-code",
        "the_commands_of_the_page_add_a_running_server",
    ),
    ("docs/setup/clients.md", "{\n  \"mcpServers\"", "clients_on_the_same_machine"),
    ("docs/setup/clients.md", "{\n  \"servers\"", "clients_on_the_same_machine"),
    ("docs/setup/clients.md", "{\n  \"mcp\"", "clients_on_the_same_machine"),
    ("docs/setup/clients.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("docs/setup/clients.md", "{\n  \"inputs\"", "clients_over_the_network"),
    ("docs/setup/clients.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("docs/setup/clients.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("docs/setup/install.md", "mkdir -p", "completions_complete_and_man_pages_have_the_options_of_front_ends"),
    ("docs/setup/deploy.md", "# /etc/systemd/system/countersign.service", "the_systemd_unit_is_valid"),
    (
        "docs/setup/deploy.md",
        "# /etc/systemd/system/countersign-prune.service",
        "the_prune_timer_is_valid_and_its_command_prunes",
    ),
    (
        "docs/setup/deploy.md",
        "# /etc/systemd/system/countersign-prune.timer",
        "the_prune_timer_is_valid_and_its_command_prunes",
    ),
    ("docs/setup/deploy.md", "apiVersion: v1", "the_pods_of_kubernetes_serve_and_their_probes_are_answered"),
    ("docs/setup/proxy.md", "[http]", "the_sample_of_trusted_proxies_is_read"),
    ("docs/setup/proxy.md", "location / {", "sessions_of_both_transports_work_through_nginx"),
    ("docs/setup/proxy.md", "defaults", "the_haproxy_configuration_is_valid"),
    ("docs/setup/pgbouncer.md", "; pgbouncer.ini", "documented(\"ini\")"),
    ("docs/setup/pgbouncer.md", "create role pgbouncer", "documented(\"sql\")"),
    (
        "docs/setup/databases.md",
        "# countersign.toml",
        "each_server_of_a_list_is_used_by_its_role_and_a_failover_is_followed",
    ),
    (
        "docs/setup/databases.md",
        "countersign init --dry-run",
        "the_commands_of_the_page_revoke_the_functions_on_the_coordinator_and_on_a_worker",
    ),
    (
        "docs/setup/patroni.md",
        "# /etc/patroni/patroni.yml",
        "a_switchover_and_a_killed_primary_lose_no_acknowledged_write_and_double_none",
    ),
    (
        "docs/setup/patroni.md",
        "# /etc/haproxy/haproxy.cfg",
        "a_switchover_and_a_killed_primary_lose_no_acknowledged_write_and_double_none",
    ),
    (
        "docs/setup/patroni.md",
        "# countersign.toml",
        "a_switchover_and_a_killed_primary_lose_no_acknowledged_write_and_double_none",
    ),
    ("docs/setup/connect.md", "database_url = ", "a_program_prints_the_password_and_a_changed_one_needs_no_restart"),
    ("docs/setup/configure.md", "# countersign.toml", "the_sample_configuration_starts_a_server"),
    (
        "docs/topics/manifests.md",
        "name = \"shop\"",
        "a_manifest_titles_describes_and_switches_off_builtin_tools_and_instructs_agents",
    ),
    ("docs/topics/manifests.md", "# manifests/shop.toml", "the_tool_of_the_page_sets_the_columns_that_are_given"),
    ("docs/topics/execute-sql.md", "execute_sql = \"rows\"", "the_settings_of_the_page_limit_a_statement"),
    ("docs/topics/row-security.md", "alter table crm.note", "the_recipes_of_the_page_separate_callers"),
    ("docs/topics/row-security.md", "[oauth]", "the_recipes_of_the_page_separate_callers"),
    ("docs/topics/row-security.md", "alter table crm.deal", "the_recipes_of_the_page_separate_callers"),
    ("docs/topics/row-security.md", "create role app_eu", "the_recipes_of_the_page_separate_callers"),
    ("docs/topics/row-security.md", "[profiles.eu]", "the_recipes_of_the_page_separate_callers"),
    ("docs/topics/masking.md", "[mask]", "the_masks_of_the_page_differ_by_profile_and_account"),
    ("docs/topics/policies.md", "name = \"shop\"", "the_tool_of_the_page_has_the_policy_that_the_page_says"),
    ("docs/topics/policies.md", "select decided_at", "the_tool_of_the_page_has_the_policy_that_the_page_says"),
    ("docs/topics/proposals.md", "countersign proposals list", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/topics/proposals.md", "create role anna", "statements_for_operators"),
    ("docs/topics/notifications.md", "[notify]", "the_samples_of_notifications_are_read_and_sent"),
    ("docs/topics/notifications.md", "{\n  \"type\"", "the_samples_of_notifications_are_read_and_sent"),
    ("docs/topics/notifications.md", "countersign proposals watch", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/topics/proposals.md", "[[tool]]", "the_sample_of_several_people_is_accepted"),
    ("docs/topics/read-log.md", "select read_at", "the_statements_about_the_log_of_reads_run_as_an_operator"),
    ("docs/topics/read-log.md", "select p.day", "the_statements_about_the_log_of_reads_run_as_an_operator"),
    ("docs/topics/monitoring.md", "*/5 * * * *", "jobs_of_cron"),
    ("docs/topics/monitoring.md", "- alert:", "the_alerts_of_the_page_are_of_metrics_that_exist"),
    ("docs/topics/monitoring.md", "5 0 * * *", "jobs_of_cron"),
    ("docs/topics/reading.md", "{\"query\": \"select handle", "the_sample_of_the_page_is_what_the_server_answers"),
    ("docs/topics/security-model.md", "revoke execute", "statements_for_operators"),
    ("docs/topics/schema-changes.md", "[profiles.migrations]", "the_profile_of_schema_changes_has_its_tools"),
    ("docs/topics/schema-changes.md", "$ cat change.sql", "the_commands_of_schema_changes_print_what_the_page_shows"),
    ("docs/topics/migrations.md", "$ countersign check", "the_commands_after_a_migration_print_what_the_page_shows"),
    ("docs/topics/migrations.md", "$ countersign track", "the_commands_after_a_migration_print_what_the_page_shows"),
    ("docs/topics/tracking.md", "countersign track", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/topics/tracking.md", "create role shop_admin", "the_commands_of_tracking_print_what_the_page_shows"),
    ("docs/topics/tracking.md", "$ countersign track", "the_commands_of_tracking_print_what_the_page_shows"),
    ("docs/topics/tracking.md", "countersign freeze", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/topics/undo.md", "create role olga", "the_commands_of_undo_print_what_the_page_shows"),
    ("docs/topics/undo.md", "$ countersign audit list", "the_commands_of_undo_print_what_the_page_shows"),
    ("docs/topics/undo-in-an-emergency.md", "$ countersign freeze", "the_commands_of_undo_print_what_the_page_shows"),
    ("docs/topics/undo.md", "countersign undo CORRELATION_ID", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/topics/undo.md", "countersign undo plan", "usage_lines_name_commands_and_options_that_exist"),
];

/// A fenced block of a page.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    page: String,
    line: usize,
    pub(crate) text: String,
}

/// Every sample, by page and place. The pages of `docs/reference` are generated.
fn samples() -> Vec<Sample> {
    let pages = pages().into_iter().filter(|page| !page.starts_with("docs/reference/"));
    pages.flat_map(|page| samples_of(&page)).collect()
}

fn samples_of(page: &str) -> Vec<Sample> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let mut samples = Vec::new();
    let mut open: Option<Sample> = None;
    let mut is_diagram = false;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.starts_with("```")) {
            (None, true) => {
                is_diagram = line == "```text";
                open = Some(Sample { page: page.to_owned(), line: number + 1, text: String::new() });
            }
            (Some(_), true) => samples.extend(open.take().filter(|_| !is_diagram)),
            (Some(sample), false) => sample.text.push_str(&format!("{line}\n")),
            (None, false) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    samples
}

/// The samples of a page that begin like this.
pub(crate) fn samples_like(page: &str, beginning: &str) -> Vec<Sample> {
    let found: Vec<Sample> = samples_of(page).into_iter().filter(|sample| sample.text.starts_with(beginning)).collect();
    assert!(!found.is_empty(), "{page} has no sample that begins with {beginning}");
    found
}

/// The one sample of a page that begins like this.
pub(crate) fn sample(page: &str, beginning: &str) -> String {
    let found = samples_like(page, beginning);
    assert_eq!(found.len(), 1, "{page} has several samples that begin with {beginning}");
    found.into_iter().next().unwrap().text
}

/// The sources of the black-box tests.
fn sources() -> String {
    let mut folders = vec![repository().join("tests/acceptance")];
    let mut sources = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("samples.rs") {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    sources
}

#[test]
fn every_sample_is_run_by_a_test() {
    let mut left: Vec<&(&str, &str, &str)> = RUN_BY.iter().collect();
    for sample in samples() {
        let known =
            left.iter().position(|(page, beginning, _)| *page == sample.page && sample.text.starts_with(beginning));
        let place = format!("{}:{}", sample.page, sample.line);
        let known = known.unwrap_or_else(|| panic!("{place}: no test runs this sample:\n{}", sample.text));
        left.remove(known);
    }
    assert!(left.is_empty(), "samples that are not there any more: {left:?}");
    let sources = sources();
    let tests: BTreeSet<&str> = RUN_BY.iter().map(|(_, _, test)| *test).collect();
    for test in tests {
        let is_there = sources.contains(&format!("fn {test}(")) || (test.contains('(') && sources.contains(test));
        assert!(is_there, "the test {test} is not there");
    }
}
