-- The logins of the demo's console. The schema has nothing; it says that they were made.
create schema demo_people;
do $$
begin
    if to_regrole('demo_console') is null then
        create role demo_console login;
    end if;
    if to_regrole('demo_operator') is null then
        create role demo_operator login;
    end if;
end $$;
grant countersign_console to demo_console;
grant countersign_operator to demo_operator;
grant usage on schema social, studio to demo_operator;
grant select, insert, update, delete on all tables in schema social, studio to demo_operator;
