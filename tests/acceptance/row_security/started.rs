//! Roles that callers may not have stop the start, and `doctor` says why.

use serde_json::Value;
use testkit::{ConfigDir, run, startup_error};

use super::{command_with_role, crm};

/// Roles that a login of the server is a member of, each with the reason for which it is refused.
const REFUSED: [(&str, &str, &str); 7] = [
    ("app_super", "create role app_super superuser", "is a superuser"),
    ("app_bypass", "create role app_bypass bypassrls", "bypasses row level security"),
    ("app_creator", "create role app_creator createrole", "may create roles"),
    ("app_operator", "create role app_operator in role countersign_operator", "has rights to the ledger"),
    ("app_owner", "create role app_owner noinherit; grant countersign_owner to app_owner", "has rights to the ledger"),
    (
        "app_auditor",
        "create role app_auditor; grant usage on schema countersign to app_auditor",
        "has rights to the ledger",
    ),
    ("app_nobody", "", "does not exist"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_too_many_rights_stops_the_start_and_doctor_says_why() {
    let (db, folder) = (crm().await, ConfigDir::new());
    for (role, make, why) in REFUSED {
        if !make.is_empty() {
            // The login of callers alone, so that no login of a server has what the role has.
            db.run(&format!("{make}; grant {role} to countersign_caller")).await;
        }
        let mut command = command_with_role(&folder, &db.writer_url(), role, "");
        let said = startup_error(&mut command).await;
        let expected = format!("statements may not run as the role \"{role}\" (profiles.own.role): it {why}");
        assert!(said.contains(&expected), "{said}");
        let config = folder.path().join("countersign.toml");
        let mut doctor = folder.command(&std::fs::read_to_string(config).unwrap());
        let ran = run(doctor.args(["doctor", "--json"])).await;
        let findings: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let says = format!("statements of callers cannot run as the role \"{role}\" (profiles.own.role): it {why}");
        let found = findings.iter().find(|finding| finding["message"] == says);
        assert_eq!(found.unwrap_or_else(|| panic!("{findings:#?}"))["level"], "problem");
        if !make.is_empty() {
            db.run(&format!("revoke {role} from countersign_caller")).await;
        }
    }
    let mut command = command_with_role(&folder, &db.writer_url(), "app_us", "");
    db.run("revoke app_us from countersign_writer").await;
    let said = startup_error(&mut command).await;
    assert!(said.contains("it is not granted to the login countersign_writer"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_other_roles_and_mistakes_in_claims_are_named_with_their_place() {
    let (db, folder) = (crm().await, ConfigDir::new());
    for role in ["pg_write_all_data", "countersign_owner", "none", ""] {
        let mut command = command_with_role(&folder, &db.writer_url(), role, "");
        let said = startup_error(&mut command).await;
        assert!(said.contains(&format!("role: \"{role}\" is no role for callers")), "{said}");
    }
    for (oauth, expected) in [
        ("claims = [\"Tenant\"]", "claims: \"Tenant\" is no name for a claim in SQL"),
        ("claims = { tenant = \"\" }", "claims: the claim of tenant is empty"),
        ("claims = 7", "claims: it is a list of names, or a table with the claim of each name"),
        ("role_claim = \"db_role\"", "role_claim: roles is missing, which has the roles that it may name"),
        ("roles = [\"app_eu\"]", "roles: role_claim is missing, so no token names a role"),
        ("role_claim = \"db_role\"\nroles = [\"pg_monitor\"]", "roles: \"pg_monitor\" is no role for callers"),
    ] {
        let config = format!(
            "database_url = {:?}\n[oauth]\nissuer = \"https://login.example.com\"\naudience = \"x\"\n\
             scopes = {{ \"a\" = \"write\" }}\n{oauth}\n",
            db.writer_url()
        );
        let said = startup_error(folder.command(&config).arg("serve")).await;
        assert!(said.contains(expected) && said.contains("countersign.toml:"), "{expected} is not in {said}");
    }
}
