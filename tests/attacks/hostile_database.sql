-- The owner of a database prepares it against everybody who connects to it: a twin of each function and operator of PostgreSQL in
-- a schema that stands in front of PostgreSQL's own. Whoever's SQL calls one of them runs the owner's code.
--
-- A twin takes a number from a sequence, which no ROLLBACK takes back, and fails.
create schema evil;
grant usage on schema evil to public;
create sequence evil.calls;
grant usage on sequence evil.calls to public;

do $$
declare
    item  record;
    made  integer := 0;
begin
    for item in
        select p.proname, p.proretset, p.provariadic, pg_get_function_arguments(p.oid) as arguments,
               pg_get_function_identity_arguments(p.oid) as identity, pg_get_function_result(p.oid) as result
        from pg_proc p
        where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
          and not exists (select from unnest(p.proargtypes) t
                          where t in ('internal'::regtype, 'cstring'::regtype, '"any"'::regtype, 'trigger'::regtype))
          and p.prorettype not in ('internal'::regtype, 'cstring'::regtype, 'trigger'::regtype, 'event_trigger'::regtype,
                                   'language_handler'::regtype, 'fdw_handler'::regtype, 'index_am_handler'::regtype,
                                   'table_am_handler'::regtype, 'tsm_handler'::regtype)
    loop
        begin
            execute format(
                'create function evil.%I(%s) returns %s language plpgsql volatile as $f$ '
                'begin perform pg_catalog.nextval(%L); raise exception %L; end $f$',
                item.proname, item.arguments, item.result, 'evil.calls', 'the twin of ' || item.proname || ' was called');
            made := made + 1;
        exception when others then
            null;
        end;
    end loop;
    if made < 2000 then
        raise exception 'only % twins of functions', made;
    end if;
    made := 0;
    for item in
        select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result, p.proname
        from pg_operator o join pg_proc p on p.oid = o.oprcode
        where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprleft <> 0
    loop
        begin
            execute format(
                'create function evil.%I(%s, %s) returns %s language plpgsql as $f$ '
                'begin perform pg_catalog.nextval(%L); raise exception %L; end $f$',
                'operator_' || made, item.l, item.r, item.result, 'evil.calls', 'the twin of ' || item.oprname || ' was called');
            execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.%I)',
                item.oprname, item.l, item.r, 'operator_' || made);
            made := made + 1;
        exception when others then
            made := made + 1;
        end;
    end loop;
    if (select count(*) from pg_operator o where o.oprnamespace = 'evil'::regnamespace) < 500 then
        raise exception 'too few twins of operators';
    end if;
end $$;

-- Twins of what our SQL reads.
create view evil.pg_roles as select (evil.nextval('evil.calls'))::text as rolname;
create view evil.pg_class as select (evil.nextval('evil.calls'))::text as relname;
create view evil.pg_namespace as select (evil.nextval('evil.calls'))::text as nspname;
grant select on all tables in schema evil to public;

-- Exact matches that PostgreSQL's own functions have not: they win even behind pg_catalog.
create function public.pg_advisory_lock(integer) returns void language plpgsql as
$$ begin perform pg_catalog.nextval('evil.calls'); raise exception 'public.pg_advisory_lock(integer) was called'; end $$;
create function public.pg_advisory_xact_lock(integer) returns void language plpgsql as
$$ begin perform pg_catalog.nextval('evil.calls'); raise exception 'public.pg_advisory_xact_lock(integer) was called'; end $$;
create function public.format(text, text) returns text language plpgsql as
$$ begin perform pg_catalog.nextval('evil.calls'); raise exception 'public.format(text, text) was called'; end $$;
create function public.convert_to(text, text) returns bytea language plpgsql as
$$ begin perform pg_catalog.nextval('evil.calls'); raise exception 'public.convert_to(text, text) was called'; end $$;
