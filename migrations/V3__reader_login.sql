-- The login of the read path: SELECT on what agents may read, and nothing else (ARCHITECTURE.md, decision 3).

create table countersign.reader_login (
    role_name  name primary key,
    password   text not null
);
comment on table countersign.reader_login is
    'How the server logs in to read. Only the ledger''s owner may see it.';
revoke all on countersign.reader_login from public;

-- Makes the login, unless this database has one, and grants it what exists by now. A role belongs to the whole cluster:
-- when another database made `countersign_reader`, this one takes a name of its own instead of changing that password.
create function countersign.ensure_reader(new_password text) returns void
language plpgsql as $$
declare
    login   name;
    own     name := 'countersign_reader_' || (select oid from pg_database where datname = current_database());
    space   name;
begin
    select role_name into login from countersign.reader_login;
    if login is null or not exists (select from pg_roles where rolname = login) then
        login := coalesce(login, 'countersign_reader');
        begin
            execute format('create role %I login password %L nosuperuser nocreatedb nocreaterole noreplication', login, new_password);
        exception when duplicate_object or unique_violation then
            login := own;
            if exists (select from pg_roles where rolname = login) then
                execute format('alter role %I login password %L', login, new_password);
            else
                execute format('create role %I login password %L nosuperuser nocreatedb nocreaterole noreplication', login, new_password);
            end if;
        end;
        delete from countersign.reader_login;
        insert into countersign.reader_login values (login, new_password);
    end if;
    execute format('grant connect on database %I to %I', current_database(), login);
    for space in
        select nspname from pg_namespace
        where nspname not in ('countersign', 'information_schema') and nspname not like 'pg\_%'
    loop
        execute format('grant usage on schema %I to %I', space, login);
        execute format('grant select on all tables in schema %I to %I', space, login);
    end loop;
end $$;
revoke all on function countersign.ensure_reader from public;
