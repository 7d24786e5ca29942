-- $1: the name of a role, or null. One row: the name, and why statements of a caller may not run as this role; null if they
-- may, or for no role. The rights of the ledger's roles and of its owner may not be had by a caller in any way.
select g.role, case
        when g.role is null then null
        when r.oid is null then 'does not exist'
        when not pg_catalog.pg_has_role(session_user, r.oid, case
                when pg_catalog.current_setting('server_version_num')::pg_catalog.int4 operator(pg_catalog.>=) 160000 then 'SET'
                else 'MEMBER' end)
            then pg_catalog.concat('is not granted to the login ', session_user)
        when r.rolsuper then 'is a superuser'
        when r.rolbypassrls then 'bypasses row level security'
        when r.rolcreaterole then 'may create roles'
        when exists (
                select from pg_catalog.pg_namespace n
                where n.nspname operator(pg_catalog.=) 'countersign' and (
                    pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE') or pg_catalog.pg_has_role(r.oid, n.nspowner, 'MEMBER')
                    or exists (
                        select from pg_catalog.aclexplode(n.nspacl) a
                        where a.grantee operator(pg_catalog.<>) 0 and pg_catalog.pg_has_role(r.oid, a.grantee, 'MEMBER'))))
            then 'has rights to the ledger'
    end as why
from (select $1::pg_catalog.text as role) g
    left join pg_catalog.pg_roles r on r.rolname operator(pg_catalog.=) g.role::pg_catalog.name
