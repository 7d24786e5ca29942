-- Undo of one write or of several at once:
--
--   the attempt with undo_of = writes | claim | undo(writes) -> {"status": "conflict", ..}: ROLLBACK, fail with this detail
--                                             | SET CONSTRAINTS ALL IMMEDIATE | finish | COMMIT
--
-- `undo` works with the rights of the login, so triggers and policies apply as to any write. The proof (`prove_undo`, called by
-- `finish`) has the ledger's rights and reads recorded effects only: what the undo itself changed has to be the exact inverse. So no
-- right of a login marks a write as reversed that was not, and no code of a table's owner runs with the ledger's rights.

-- The conditions under which a row of the table ("!t", which no column is called) has the key of an image (u, its columns are named by `letter`).
create function countersign.key_match(t countersign.tracked, letter text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (select string_agg(format('"!t".%I %s u.%s%s', k, o, letter, array_position(t.columns, k)), ' and ')
            from unnest(t.key_columns, t.key_operators) u (k, o));
end $$;
comment on function countersign.key_match(countersign.tracked, text) is 'SQL: a row of the table has the key of an image.';

create function countersign.only(t countersign.tracked) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return case when (select c.relkind from pg_class c where c.oid = t.relation) = 'p' then t.name else 'only ' || t.name end;
end $$;
comment on function countersign.only(countersign.tracked) is 'SQL: the table, without those that inherit from it: a row of theirs can have the same key.';

create function countersign.image_columns(t countersign.tracked, letter text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (select string_agg(letter || n, ', ' order by n) from generate_subscripts(t.columns, 1) n);
end $$;
comment on function countersign.image_columns(countersign.tracked, text) is 'SQL: names for the columns of an image.';

create function countersign.row_image_expression(t countersign.tracked) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    if t.sensitive = '{}' and t.unstored = '{}' then
        return '"!t"';
    end if;
    return (select 'row(' || string_agg(case when c = any (t.sensitive || t.unstored) then 'null' else format('"!t".%I', c) end, ', ' order by o) || ')'
            from unnest(t.columns) with ordinality u (c, o));
end $$;
comment on function countersign.row_image_expression(countersign.tracked) is 'SQL: what of a row is in its image.';

create function countersign.cast_images(of_type anyelement, images text[]) returns anyarray
language plpgsql stable set search_path = pg_catalog, pg_temp set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 set xmloption = content as $$
declare
    result  alias for $0;
begin
    -- An assignment casts by input functions where nothing else does, and its plan is kept for each type.
    result := images;
    return result;
end $$;
comment on function countersign.cast_images(anyelement, text[]) is 'Images as rows of their table, whatever the settings of the session.';

create function countersign.current_rows(t countersign.tracked, images text[], is_locking boolean, path text)
returns table (n bigint, image text, changed_at timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 set xmloption = content
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    query  text := format(
        'select u.ord, pg_catalog.textin(pg_catalog.record_out(%s)), %s '
        'from rows from (pg_catalog.unnest(countersign.cast_images(null::%s, $1))) with ordinality u (%s, ord) join %s "!t" on %s order by %s %s',
        countersign.row_image_expression(t), case when current_setting('track_commit_timestamp') = 'on' then 'pg_catalog.pg_xact_commit_timestamp("!t".xmin)' else 'null::timestamptz' end,
        t.name, countersign.image_columns(t, 'c'), countersign.only(t), countersign.key_match(t, 'c'),
        (select string_agg(format('"!t".%I', k), ', ') from unnest(t.key_columns) k), case when is_locking then 'for update of "!t"' else '' end);
begin
    -- Until the end of the function: what policies call finds what it finds in the session.
    perform set_config('search_path', path, true);
    return query execute query using images;
end $$;
comment on function countersign.current_rows(countersign.tracked, text[], boolean, text) is
    'The rows that have the keys of images, as they are now; locked in the order of their keys if asked.';

create function countersign.execute_in(path text, statement text, images text[], matched text[]) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    done  bigint;
begin
    -- Until the end of the function: triggers of the table find what they find in any statement of the session.
    perform set_config('search_path', path, true);
    execute statement using images, matched;
    get diagnostics done = row_count;
    return done;
end $$;
comment on function countersign.execute_in(text, text, text[], text[]) is 'Runs a statement of `undo` with the search_path of the session.';

create function countersign.apply_images(
    t countersign.tracked, kind text, images text[], matched text[], path text, may_exist boolean default false
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    given      text := format('rows from (pg_catalog.unnest(countersign.cast_images(null::%1$s, $1)), '
                              'pg_catalog.unnest(countersign.cast_images(null::%1$s, $2))) u (%2$s, %3$s)',
                              t.name, countersign.image_columns(t, 'c'), countersign.image_columns(t, 'm'));
    statement  text;
    part       record;
    done       bigint := 0;
begin
    if kind = 'D' then
        statement := format('delete from %s "!t" using %s where %s', countersign.only(t), given, countersign.key_match(t, 'm'));
    elsif kind = 'I' then
        -- A trigger may have made the row already, beside that of another table: what differs is set later.
        select format('insert into %s (%s) overriding system value select %s from %s%s', t.name,
                      string_agg(format('%I', c), ', ' order by o), string_agg('u.c' || o, ', ' order by o), given,
                      case when may_exist then (select format(' on conflict (%s) do nothing', string_agg(format('%I', k), ', ')) from unnest(t.key_columns) k) end)
        into statement
        from unnest(t.columns) with ordinality u (c, o) where c <> all (t.computed);
    else
        -- A statement for each set of columns: no trigger OF a column fires that the write did not change, and no right to it is needed.
        for part in execute (
            select format('select x.changed, array_agg(x.image) as images, array_agg(x.matched) as matched '
                          'from (select array_remove(array[%s], null) as changed, u.image, u.matched '
                          'from rows from (unnest(countersign.cast_images(null::%s, $1)), unnest(countersign.cast_images(null::%2$s, $2)), '
                          'unnest($1), unnest($2)) u (%s, %s, image, matched)) x group by x.changed order by x.changed',
                          string_agg(format('case when record_image_ne(row(u.c%1$s), row(u.m%1$s)) then %1$s end', o), ', '), t.name,
                          countersign.image_columns(t, 'c'), countersign.image_columns(t, 'm'))
            from generate_subscripts(t.columns, 1) o) using images, matched
        loop
            select format('update %s "!t" set (%s) = row (%s) from %s where %s', countersign.only(t),
                          string_agg(format('%I', c), ', ' order by o), string_agg('u.c' || o, ', ' order by o), given,
                          countersign.key_match(t, 'm'))
            into statement
            from unnest(t.columns) with ordinality u (c, o)
            where o = any (part.changed) and c <> all (t.fixed) and c <> all (t.sensitive);
            continue when statement is null or part.changed <@ array(
                select o::integer from unnest(t.columns) with ordinality u (c, o) where c = any (t.fixed || t.sensitive));
            done := done + countersign.execute_in(path, statement, part.images, part.matched);
        end loop;
        return done;
    end if;
    return countersign.execute_in(path, statement, images, matched);
end $$;
comment on function countersign.apply_images(countersign.tracked, text, text[], text[], text, boolean) is
    'On the rows with the keys of `matched`: D deletes, U sets the columns in which the images differ. I inserts the images, with may_exist where there is no such row yet.';

-- The search_path is that of the session, as in `current_rows`.
create function countersign.row_image(shown record) returns text
language plpgsql stable set timezone = utc set datestyle = iso, ymd set intervalstyle = postgres
set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmlbinary = base64 set xmloption = content as $$
begin
    return pg_catalog.textin(pg_catalog.record_out(shown));
end $$;
comment on function countersign.row_image(record) is 'The image of a row, whatever the settings of the session.';

-- A function for each table, so that its statements are planned once a session. One statement compares and changes the row. The casts have
-- the ledger's search_path, and the statement, whose triggers may look names up, has that of the session.
create function countersign.restoring_function(of_shape integer) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $fn$
declare
    t         countersign.tracked;
    settable  text[];
    -- SQL: the row has the key of the image after the change, or before; a column is another one in both, and then this is said.
    is_same   text := '"!t".%1$I %2$s "!after".%1$I';
    is_taken  text := '"!t".%1$I %2$s "!before".%1$I';
    differs   text := 'case when pg_catalog.record_image_ne(row("!before".%1$I), row("!after".%1$I)) then %2$L end';
begin
    select k.* into strict t from countersign.tracked k where k.shape = of_shape;
    settable := array(select c from unnest(t.columns) with ordinality u (c, o) where c <> all (t.fixed || t.sensitive || t.key_columns) order by o);
    select string_agg(format(is_same, k, o), ' and '), string_agg(format(is_taken, k, o), ' and ') into is_same, is_taken
    from unnest(t.key_columns, t.key_operators) u (k, o);
    is_same := is_same || ' and countersign.row_image(' || countersign.row_image_expression(t) || ') operator(pg_catalog.=) after';
    return format($definition$
create or replace function countersign.%I(of_shape integer, before text, after text, path text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as %L$definition$, 'restore_of_' || t.relation, format($body$
#variable_conflict use_variable
declare
    "!before"   %1$s;
    "!after"    %1$s;
    "!columns"  text;     -- What the write changed: no trigger OF another column fires, and no right to it is needed.
    "!done"     bigint;
begin
    if of_shape <> %2$s then
        return false;
    end if;
    if before is not null then
        "!before" := (countersign.cast_images(null::%1$s, array[before]))[1];
    end if;
    if after is not null then
        "!after" := (countersign.cast_images(null::%1$s, array[after]))[1];
    end if;
    if before is not null and after is not null then
        "!columns" := concat_ws(', ', %3$s);
    end if;
    path := set_config('search_path', path, true);
    if before is null then
        delete from %9$s "!t" where %4$s;
    elsif after is null then
        insert into %1$s (%5$s) overriding system value
        select %6$s where not exists (select from %9$s "!t" where %7$s);%8$s
    else
        return false;
    end if;
    get diagnostics "!done" = row_count;
    return "!done" operator(pg_catalog.=) 1;
end $body$,
        t.name, t.shape,
        coalesce((select string_agg(format(differs, c, quote_ident(c)), ', ' order by o) from unnest(settable) with ordinality u (c, o)), 'null'),
        is_same,
        (select string_agg(quote_ident(c), ', ' order by o) from unnest(t.columns) with ordinality u (c, o) where c <> all (t.computed)),
        (select string_agg(format('"!before".%I', c), ', ' order by o) from unnest(t.columns) with ordinality u (c, o) where c <> all (t.computed)),
        is_taken,
        -- One column is the most frequent case. The statement for several is planned each time.
        (select string_agg(format(E'\n    elsif "!columns" operator(pg_catalog.=) %L then\n        update %s "!t" set %I = "!before".%3$I where %s;',
                                  quote_ident(c), countersign.only(t), c, is_same), '' order by o)
                || format(E'\n    elsif "!columns" operator(pg_catalog.<>) '''' then\n        execute pg_catalog.concat(%L, "!columns", '') = row ('', '
                          'pg_catalog.concat_ws('', '', %s), %L)\n        using "!before", "!after", after;',
                          format('update %s "!t" set (', countersign.only(t)), string_agg(format(differs, c, '($1).' || quote_ident(c)), ', ' order by o),
                          ') where ' || (select string_agg(format('"!t".%1$I %2$s ($2).%1$I', k, o), ' and ') from unnest(t.key_columns, t.key_operators) u (k, o))
                          || ' and countersign.row_image(' || countersign.row_image_expression(t) || ') operator(pg_catalog.=) $3')
         from unnest(settable) with ordinality u (c, o)), countersign.only(t)));
end $fn$;
comment on function countersign.restoring_function(integer) is
    'The text of the function that restores a row of a tracked table, if it is still what a write left. Null for a table without a key.';

create function countersign.restore_row(w countersign.net_change, path text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    t        countersign.tracked;
    is_done  boolean;
begin
    select k.* into t from countersign.tracked k where k.shape = w.shape;
    -- The statements for sets of rows lock them FOR UPDATE, which needs a right to UPDATE and the policies for it.
    if w.obstacle is not null or cardinality(t.columns) > 832 or w.before is not null and w.secret_before is distinct from w.secret_after or t.key_columns is null or not t.is_current
       or to_regclass(t.name) is distinct from t.relation::regclass or not countersign.has_current_shape(t)
       or row_security_active(t.relation) or not has_any_column_privilege(t.relation, 'UPDATE')
    then
        return false;
    end if;
    begin
        execute format('select countersign.restore_of_%s($1, $2, $3, $4)', t.relation) into is_done using w.shape, w.before, w.after, path;
        if is_done is not true then
            raise exception 'the row is not as the write left it' using errcode = 'CS002';
        end if;
        return true;
    exception
        when transaction_rollback or lock_not_available then
            raise;
        -- The statements for sets of rows know the conflicts, and do the work for a login that may not call the function.
        when others then
            return false;
    end;
end $$;
comment on function countersign.restore_row(countersign.net_change, text) is
    'Restores a row that is still what a write left, with the rights of the caller. False: nothing was changed, for whatever reason.';

create function countersign.describe_write(write uuid) returns json
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select json_build_object('correlation_id', r.correlation_id, 'completed_at', r.completed_at, 'tool_name', r.tool_name,
                             'account_id', r.account_id, 'actor', r.actor, 'session_id', r.session_id)
    from countersign.record r where r.correlation_id = write
$$;
comment on function countersign.describe_write(uuid) is 'A write, as a conflict names it.';

-- The sub-selects look each write up by an index, however many others the ledger has.
create function countersign.refused_writes(writes uuid[]) returns json[]
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (
        select array_agg(json_build_object('code', case when r.status is null then 'image_missing' when r.reversed_by is not null then 'already_reversed'
                                                        when r.status <> 'success' or r.is_only_logged or r.rows_affected = 0 then 'irreversible' else 'image_missing' end,
                                           'write', coalesce(countersign.describe_write(r.write), json_build_object('correlation_id', r.write)),
                                           'changed_by', countersign.describe_write(r.reversed_by)))
        from (select w.write, r.status, r.rows_affected,
                     (select v.reversed_by from countersign.reversal v where v.correlation_id = w.write) as reversed_by,
                     (select e.position from countersign.effect e where e.correlation_id = w.write limit 1) as position,
                     r.evidence::jsonb ? 'untracked' as has_untracked, r.rollback ->> 'reversible' = 'false' as said_no,
                     (select bool_and(t.is_log) from countersign.effect e join countersign.tracked t on t.shape = e.shape
                      where e.correlation_id = w.write) as is_only_logged
              from unnest(writes) w (write) left join countersign.record r on r.correlation_id = w.write offset 0) r
        where r.status is distinct from 'success' or r.reversed_by is not null or r.is_only_logged
           or r.position is null and (r.rows_affected is distinct from 0 or r.has_untracked or r.said_no));
end $$;
comment on function countersign.refused_writes(uuid[]) is
    'Writes that are no success, were undone before, have no effects on record or only such on log tables, as conflicts; null for none.';

create function countersign.describe_conflict(
    t countersign.tracked, w countersign.net_change, code text, image_now text, changed_at timestamptz, writes uuid[]
) returns json language sql stable set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
        'code', code, 'table', t.name, 'key', w.key::json, 'write', countersign.describe_write(w.writer),
        'columns', (select json_agg(json_build_object('name', c.name, 'to_restore', countersign.field_value(c.b),
                                                      'left', countersign.field_value(c.l), 'now', countersign.field_value(c.n)))
                    from unnest(t.columns, countersign.fields(w.before), countersign.fields(w.after), countersign.fields(image_now)) c (name, b, l, n)
                    where (c.b, c.l) is distinct from (c.l, c.n) and c.name <> all (t.sensitive)),
        'changed_by', coalesce(
            (select coalesce(countersign.describe_write(e.correlation_id), json_build_object('outside', e.origin, 'at', e.changed_at))
             from countersign.effects_of_row(w.relation, w.key) e
             where e.position > w.last_position and (e.correlation_id is null or e.correlation_id <> all (writes))
             order by e.position desc limit 1),
            json_build_object('outside', 'outside countersign', 'at', changed_at)))
$$;
comment on function countersign.describe_conflict(countersign.tracked, countersign.net_change, text, text, timestamptz, uuid[]) is
    'One conflict: code, write, table, key, columns (to restore, left by the write, now), and what changed the row.';

create function countersign.undo_conflicts(
    writes uuid[], net countersign.net_change[], is_locking boolean, path text
) returns json[]
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    recorded   countersign.tracked;
    t          countersign.tracked;
    conflicts  json[] := '{}';
    differing  json[];
    rows       countersign.net_change[];
begin
    for recorded in
        select distinct on (k.relation, k.shape) k.* from unnest(net) w join countersign.tracked k on k.shape = w.shape order by k.relation, k.shape
    loop
        t := countersign.tracked_now(recorded);
        if recorded.key_columns is null or t.shape is null then
            conflicts := conflicts || json_build_object('code', case when recorded.key_columns is null then 'irreversible' else 'schema_changed' end,
                                                        'table', coalesce(countersign.table_name(recorded.relation), recorded.name));
            continue;
        end if;
        rows := array(select w from unnest(net) w where w.shape = recorded.shape order by w.key);
        begin
            -- What is to come back has to be a value of its type still.
            if exists (select from unnest(t.type_ids) i where i >= 16384) then
                execute format('select countersign.cast_images(null::%s, $1)', t.name) using array(select r.before from unnest(rows) r where r.before is not null);
            end if;
            with w as materialized (
                select u.*, u.ord as place from unnest(rows) with ordinality u (relation, shape, key, before, after, secret_before, secret_after,
                                                                                obstacle, last_position, writer, ord)
            ), now as materialized (
                select r.* from countersign.current_rows(t, array(select coalesce(w.after, w.before) from w order by w.place), is_locking, path) r
            ), compared as (
                select w.place, now.image, now.changed_at, case
                    when w.obstacle is not null then w.obstacle
                    -- The row may be that of another change, whose key is spelled otherwise and equal.
                    when w.after is null and now.n is not null then
                        case when not exists (select from w o where o.after is not distinct from now.image) then 'key_taken' end
                    -- A policy may hide the row as well.
                    when w.after is not null and now.n is null then
                        case when row_security_active(t.relation) then 'not_permitted' else 'deleted_since' end
                    when w.after is not null and now.image is distinct from w.after
                         and not countersign.same_image(t, now.image, w.after, t.sensitive) then 'changed_since'
                    when w.before is not null and w.secret_before is distinct from w.secret_after then 'image_missing' end as code
                from w left join now on now.n = w.place
            )
            select array_agg(countersign.describe_conflict(t, rows[c.place], c.code, c.image, c.changed_at, writes) order by c.place)
            into differing from compared c where c.code is not null;
        exception
            -- A value that its type does not have any more, such as a label of an enum that was renamed.
            when data_exception or undefined_object or undefined_function or datatype_mismatch then
                differing := array[json_build_object('code', 'schema_changed', 'table', t.name, 'message', sqlerrm)];
        end;
        conflicts := conflicts || coalesce(differing, '{}');
    end loop;
    return conflicts;
end $$;
comment on function countersign.undo_conflicts(uuid[], countersign.net_change[], boolean, text) is
    'Compares each row that writes left with the row now. Runs with the rights of the caller.';

create function countersign.moved_rows(writes uuid[], net countersign.net_change[]) returns table (relation oid, key_now text, key_before text)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    with recursive renaming as materialized (
        select e.relation, e.key_before, e.key, e.position from countersign.effect e
        where e.correlation_id = any (writes) and e.key_before is not null
    ), vacated as materialized (
        select w.relation, w.key from unnest(net) w where w.before is not null and w.after is null
          and exists (select from renaming r where r.relation = w.relation and r.key_before = w.key)
    ), path as (
        select v.relation, v.key as origin, v.key, 0::bigint as position from vacated v
        union all
        select p.relation, p.origin, n.key, n.position from path p
        cross join lateral (select r.key, r.position from renaming r
                            where r.relation = p.relation and r.key_before = p.key and r.position > p.position
                            order by r.position limit 1) n
    )
    select distinct on (p.relation, w.key) p.relation, w.key, p.origin from path p
    join unnest(net) w on w.relation = p.relation and w.key = p.key and w.before is null and w.after is not null
    where p.position > 0 order by p.relation, w.key, p.position desc
$$;
comment on function countersign.moved_rows(uuid[], countersign.net_change[]) is
    'Rows whose key writes have changed: undone by an UPDATE of the key, so that what refers to them follows.';

----------------------------------------------------------------------------------------------- what an undo reaches beyond its rows

create function countersign.is_guarded(relation oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return countersign.has_triggers(relation, 0)
        or exists (select from pg_class c where c.oid = relation and (c.relhassubclass and c.relkind = 'r' or c.relhasrules))
        or exists (select from pg_trigger g join pg_constraint f on f.oid = g.tgconstraint
                   where g.tgrelid = is_guarded.relation and g.tgisinternal and f.confrelid = g.tgrelid
                     and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd')));
end $$;
comment on function countersign.is_guarded(oid) is
    'Whether a change of its rows can change others: it has triggers, rules, children, or foreign keys with an action.';

create function countersign.untracked_counts(is_exact boolean, also oid[] default '{}') returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    return (
        select coalesce(jsonb_object_agg(c.oid::text, json_build_array(n.inserted, n.updated, n.deleted)), '{}')
        from pg_class c
        cross join lateral (select pg_stat_get_xact_tuples_inserted(c.oid) as inserted, pg_stat_get_xact_tuples_updated(c.oid) as updated,
                                   pg_stat_get_xact_tuples_deleted(c.oid) as deleted) n
        where c.relkind = 'r' and c.oid >= 16384 and c.relpersistence <> 't' and c.relnamespace <> 'countersign'::regnamespace
          and (is_exact or c.oid = any (also) or c.oid in (select l.relation from pg_locks l
                                     where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode = 'RowExclusiveLock'))
          and n.inserted + n.updated + n.deleted > 0
          and not exists (select from countersign.tracked t where t.is_current
                          and t.relation = case when c.relispartition then pg_partition_root(c.oid)::oid else c.oid end));
end $$;
comment on function countersign.untracked_counts(boolean, oid[]) is
    'The rows that this transaction has inserted, updated and deleted in tables that are not tracked, under their oid; with is_exact every table, '
    'otherwise those that this transaction has locked, and others that are named. Earlier transactions of the session may still be in the counts, but not in their difference.';

create function countersign.untracked_damage(before jsonb, after jsonb, allowed jsonb, touched oid[]) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
    select json_agg(json_build_object(
               'code', case when f.is_reached then 'referenced' else 'side_effects' end, 'table', countersign.table_name(d.relation),
               'message', format('the undo would change %s and delete %s rows of %s, which is not tracked', d.updated, d.deleted,
                                 countersign.table_name(d.relation))) order by d.relation)
    from (select a.key::oid as relation,
                 (a.value ->> 1)::bigint - coalesce((before -> a.key ->> 1)::bigint, 0) as updated,
                 (a.value ->> 2)::bigint - coalesce((before -> a.key ->> 2)::bigint, 0) as deleted,
                 coalesce((allowed -> a.key ->> 0)::bigint, 0) as inserted_then,
                 coalesce((allowed -> a.key ->> 1)::bigint, 0) as updated_then,
                 coalesce((allowed -> a.key ->> 2)::bigint, 0) as deleted_then
          from jsonb_each(after) a) d
    cross join lateral (select exists (
        select from pg_constraint f where f.conrelid = d.relation and f.contype = 'f' and f.confrelid = any (touched)
        and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd'))) as is_reached) f
    where case when f.is_reached then d.updated > 0 or d.deleted > 0
               -- A trigger that keeps a total, or a row beside each row: as many as the write itself has touched.
               else d.updated > d.updated_then + d.inserted_then or d.deleted > d.inserted_then end
$$;
comment on function countersign.untracked_damage(jsonb, jsonb, jsonb, oid[]) is
    'What an undo did to rows of tables that are not tracked, as conflicts, beyond what the triggers of the write did to them; null for nothing.';

create function countersign.evidence_of(writes uuid[]) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    evidence  jsonb;
begin
    -- One write as a rule, whose evidence it is.
    if cardinality(writes) = 1 then
        select r.evidence::jsonb into evidence from countersign.record r where r.correlation_id = writes[1];
        return coalesce(evidence, '{}');
    end if;
    return jsonb_build_object(
        'assigned', (
            select coalesce(jsonb_object_agg(u.relation::text, u.columns), '{}')
            from (select e.relation, jsonb_agg(distinct c.number) filter (where c.number is not null) as columns,
                         bool_and(r.evidence::jsonb -> 'assigned' ? e.relation::text) as is_known
                  from (select distinct f.correlation_id, f.relation from countersign.effect f
                        where f.correlation_id = any (writes) and f.op = 'U') e
                  join countersign.record r on r.correlation_id = e.correlation_id
                  left join lateral jsonb_array_elements(r.evidence::jsonb -> 'assigned' -> e.relation::text) c (number) on true
                  group by e.relation) u
            where u.is_known),
        'untracked', (
            select coalesce(jsonb_object_agg(u.relation, jsonb_build_array(u.inserted, u.updated, u.deleted)), '{}')
            from (select c.key as relation, sum((c.value ->> 0)::bigint) as inserted, sum((c.value ->> 1)::bigint) as updated,
                         sum((c.value ->> 2)::bigint) as deleted
                  from countersign.record r cross join lateral jsonb_each(r.evidence::jsonb -> 'untracked') c
                  where r.correlation_id = any (writes) group by c.key) u));
end $$;
comment on function countersign.evidence_of(uuid[]) is 'What writes have noted beside their effects, taken together.';

create function countersign.deviations(
    writes uuid[], undos uuid[], after_position bigint, evidence jsonb, out wrong json, out set_again json, out grown oid[]
) language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    last_position  bigint := case when after_position > 0 then after_position else 9223372036854775807 end;
begin
    -- A history: the write, and its undo, have only added rows, and only by triggers.
    grown := array(
        select distinct u.relation from countersign.effect u
        where u.correlation_id = any (undos) and u.position > after_position and u.op = 'I' and u.by_trigger
          and exists (select from countersign.effect e where e.correlation_id = any (writes) and e.relation = u.relation and e.position <= last_position)
          and not exists (select from countersign.effect e
                          where e.correlation_id = any (writes) and e.relation = u.relation and e.position <= last_position
                            and not (e.op in ('I', 'N') and e.by_trigger)));
    with compared as materialized (
        select coalesce(d.relation, u.relation) as relation, coalesce(d.shape, u.shape) as shape, coalesce(d.key, u.key) as key,
               d.before as d_before, d.after as d_after, u.before as u_before, u.after as u_after,
               d.relation is null as is_extra, u.relation is null as is_left,
               d.secret_before is not distinct from u.secret_after and d.secret_after is not distinct from u.secret_before as has_secrets
        from countersign.net_changes(writes, 0, last_position) d
        full join countersign.net_changes(undos, after_position) u on u.relation = d.relation and coalesce(u.key, '') = coalesce(d.key, '')
        -- The images themselves first: most rows need no look at their columns.
        where (u.before is distinct from d.after or u.after is distinct from d.before
               or u.secret_before is distinct from d.secret_after or u.secret_after is distinct from d.secret_before)
          -- The undo has only added rows to it as well.
          and not (coalesce(d.relation, u.relation) = any (grown) and not exists (
              select from countersign.effect e where e.correlation_id = any (undos) and e.relation = any (grown) and e.position > after_position
              and e.relation = coalesce(d.relation, u.relation) and not (e.op in ('I', 'N') and e.by_trigger)))
    ), shape as materialized (
        select k.shape, n as t,
               -- The columns that triggers may set again: those that no statement of the write has set, and of a row that
               -- comes back those that triggers of the table insist on.
               case when evidence -> 'assigned' ? n.relation::text then array(
                   select c from unnest(n.columns, n.numbers) u (c, number)
                   where c <> all (n.key_columns) and not (evidence -> 'assigned' -> n.relation::text @> to_jsonb(number))) else '{}' end as unassigned,
               case when countersign.has_triggers(n.relation, 1 + 2 + 4) then array(select c from unnest(n.columns) c where c <> all (n.key_columns))
                    else '{}' end as insisted
        from countersign.tracked k cross join lateral countersign.tracked_now(k) n
        where k.shape in (select c.shape from compared c)
    ), looked_at as materialized (
        select c.*, s.t, f.free,
               case when (s.t).shape is null then false
                    when c.is_extra then countersign.same_image(s.t, c.u_before, c.u_after, (s.t).maintained || (s.t).unstored)
                    when c.is_left then countersign.same_image(s.t, c.d_after, c.d_before, (s.t).maintained || (s.t).unstored || f.free)
                    else c.has_secrets and countersign.same_image(s.t, c.u_before, c.d_after, (s.t).unstored)
                         and countersign.same_image(s.t, c.u_after, c.d_before, (s.t).maintained || (s.t).unstored || f.free) end as is_right
        from compared c join shape s on s.shape = c.shape
        cross join lateral (select case when c.d_before is null or c.is_extra then '{}'::text[] when c.d_after is null then s.insisted else s.unassigned end as free) f
    ), judged as materialized (
        select l.*, l.is_right and l.free <> '{}'
                    and not countersign.same_image(l.t, coalesce(l.u_after, l.d_after), l.d_before, (l.t).maintained || (l.t).unstored) as is_again
        from looked_at l
    )
    select json_agg(json_build_object('code', 'side_effects', 'table', coalesce((j.t).name, countersign.table_name(j.relation)), 'key', j.key::json,
               'columns', (select json_agg(json_build_object('name', c.name, 'to_restore', countersign.field_value(c.b), 'now', countersign.field_value(c.n)))
                           from unnest((j.t).columns, countersign.fields(j.d_before), countersign.fields(j.u_after)) c (name, b, n)
                           where c.b is distinct from c.n and c.name <> all ((j.t).sensitive || (j.t).unstored)),
               'message', case when j.is_extra then 'the undo changed a row that the write did not change'
                               when j.is_left then 'the undo left the row as it was'
                               else 'something changed the row after it was restored' end)) filter (where not j.is_right),
           case when count(*) filter (where j.is_again) > 0 then json_build_object(
               'rows', count(*) filter (where j.is_again),
               'columns', (select json_object_agg(t.name, t.columns)
                           from (select (a.t).name, json_agg(distinct c.name) as columns
                                 from judged a cross join lateral unnest((a.t).columns, countersign.fields(a.d_before), countersign.fields(a.u_after)) c (name, b, n)
                                 where a.is_again and c.b is distinct from c.n and c.name = any (a.free) group by 1) t),
               'first', (select json_agg(json_build_object('table', (a.t).name, 'key', a.key::json, 'columns', (
                             select json_object_agg(c.name, countersign.field_value(c.n))
                             from unnest((a.t).columns, countersign.fields(a.d_before), countersign.fields(a.u_after)) c (name, b, n)
                             where c.b is distinct from c.n and c.name = any (a.free) and c.name <> all ((a.t).sensitive))))
                         from (select * from judged a where a.is_again order by (a.t).name, a.key limit 20) a)) end
    into wrong, set_again
    from judged j;
end $$;
comment on function countersign.deviations(uuid[], uuid[], bigint, jsonb) is
    'Where the recorded effects of undos are not the exact inverse of what they undo: wrong has the conflicts, set_again the columns that triggers set '
    'and that no statement of the writes had set, grown the histories. With a position: the undo is what came after it in the same write.';

-- How an undo is carried out. The last argument is evaluated where `undo` is called: the search_path of the session, for the triggers and
-- policies of the tables.
create function countersign.undo(
    writes uuid[], is_executing boolean default true, path text default pg_catalog.current_setting('search_path')
) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    single     countersign.net_change := case when is_executing then countersign.single_change(writes) end;
    net        countersign.net_change[];
    conflicts  json[];
begin
    if single.relation is not null and not countersign.is_guarded(single.relation) and countersign.restore_row(single, path) then
        return json_build_object('status', 'ok', 'rows', 1);
    end if;
    net := array(select w from countersign.net_changes(writes) w);
    conflicts := countersign.refused_writes(writes);
    if conflicts is null then
        conflicts := countersign.undo_conflicts(writes, net, is_executing, path);
    end if;
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts), 'rows', cardinality(net));
    end if;
    if is_executing and exists (select from countersign.tracked k where k.is_current and k.relation in (select w.relation from unnest(net) w)
                                and not countersign.has_current_shape(k)) then
        raise exception 'the columns of a tracked table have changed' using errcode = 'CS005';
    end if;
    if not is_executing or cardinality(net) = 0 then
        return json_build_object('status', 'ok', 'rows', cardinality(net));
    end if;
    return countersign.restore_rows(writes, net, (countersign.claimed_attempt()).correlation_id, 0, countersign.evidence_of(writes), path);
end $$;
comment on function countersign.undo(uuid[], boolean, text) is
    'Undoes writes, all rows or none. {status: ok, rows, set_again, written} or {status: conflict, conflicts}; then nothing was changed. Without is_executing it '
    'only looks, and locks nothing.';

create function countersign.claimed_attempt() returns countersign.attempt
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select a from countersign.attempt a
    where a.ctid = nullif(current_setting('countersign.at', true), '')::tid and a.xmax = pg_current_xact_id()::xid
$$;
comment on function countersign.claimed_attempt() is 'The attempt that this transaction carries out; null for none.';

create function countersign.is_remade(t countersign.tracked, before text, after text) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return cardinality(t.fixed) > cardinality(t.computed) and before is not null and after is not null and exists (
        select from unnest(t.columns, countersign.fields(before), countersign.fields(after)) c (name, b, a)
        where c.b is distinct from c.a and c.name = any (t.fixed) and c.name <> all (t.computed || t.key_columns));
end $$;
comment on function countersign.is_remade(countersign.tracked, text, text) is
    'Whether a column GENERATED ALWAYS AS IDENTITY changed: no UPDATE sets it back, so the row is deleted and inserted.';

create function countersign.settle(path text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- Until the end of the function, for the triggers that were deferred.
    perform set_config('search_path', path, true);
    set constraints all immediate;
end $$;
comment on function countersign.settle(text) is 'Runs what was deferred, with the search_path of the session.';

create function countersign.restore_rows(
    writes uuid[], net countersign.net_change[], undo uuid, after_position bigint, evidence jsonb, path text
) returns json
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    sources      integer[] := array(select distinct w.shape from unnest(net) w order by 1);
    tables       countersign.tracked[] := array(select countersign.tracked_now(k) from unnest(sources) with ordinality s (shape, n)
                                                join countersign.tracked k on k.shape = s.shape order by s.n);
    relations    oid[] := array(select distinct (t).relation from unnest(tables) t);
    is_guarded   boolean := exists (select from unnest(relations) r where countersign.is_guarded(r));
    -- Those that foreign keys reach are known beforehand; for others, a look at every table where these are few, or where it is no trial.
    reached      oid[] := array(select f.conrelid from pg_trigger g join pg_constraint f on f.oid = g.tgconstraint
                                where g.tgrelid = any (relations) and g.tgisinternal and f.confrelid = g.tgrelid);
    is_exact     boolean := after_position = 0 or (select c.reltuples < 2000 from pg_class c where c.oid = 'pg_class'::regclass);
    counts       jsonb;
    counts_now   jsonb;
    written      json;
    moves        jsonb;
    depth        jsonb := '{}';
    level        record;
    kinds        text;
    total        bigint;
    wrong        json;
    set_again    json;
    histories    oid[];
    grown        oid[] := '{}';
    conflict     json;
    refusal      json;
    broken_name  text;
    kind         text;
begin
    -- Tables in the order of their foreign keys: parents are put back first and removed last.
    for pass in 1 .. least(cardinality(relations), 20) loop
        for level in
            select f.conrelid as child, max(coalesce((depth ->> f.confrelid::text)::int, 0)) + 1 as depth
            from pg_constraint f
            where f.contype = 'f' and f.conrelid <> f.confrelid and f.conrelid = any (relations) and f.confrelid = any (relations)
            group by f.conrelid
        loop
            depth := depth || jsonb_build_object(level.child::text, level.depth);
        end loop;
    end loop;
    if exists (select from unnest(net) w where w.before is null) and exists (select from unnest(net) w where w.after is null) then
        select jsonb_object_agg(m.relation || ' ' || m.key_now, m.relation || ' ' || m.key_before) into moves
        from countersign.moved_rows(writes, net) m;
    end if;

    -- Foreign keys want a row back before what refers to it, and unique values want to be free first: one order or another. M puts the
    -- key of a row back, and without it the row is deleted and inserted. The last order is that of the writes, backwards: they went
    -- through these states, so no constraint that held is in the way.
    kinds := 'MIUD';
    if exists (select from unnest(net) w where countersign.is_remade(tables[array_position(sources, w.shape)], w.before, w.after)) then
        kinds := 'DIU';
    end if;
    while kinds is not null loop
        begin
            set constraints all deferred;
            total := 0;
            if is_guarded then
                counts := countersign.untracked_counts(is_exact, reached);
            end if;
            if kinds = 'R' then
                total := countersign.restore_backwards(writes, after_position, grown, path);
            else
                foreach kind in array string_to_array(kinds, null) loop
                    total := total + countersign.restore_kind(kind, net, sources, tables, depth, case when kinds <> 'DIU' then moves end, grown, path, is_guarded);
                end loop;
            end if;
            if is_guarded or kinds = 'R' then
                perform countersign.restore_disturbed(net, sources, tables, evidence, grown, path);
            end if;
            perform countersign.settle(path);
            if is_guarded or kinds = 'R' then
                select d.wrong, d.set_again, d.grown into wrong, set_again, histories
                from countersign.deviations(writes, array[undo], after_position, evidence) d;
                if wrong is not null then
                    conflict := wrong;
                    raise exception 'the rows are not what they were before the write' using errcode = 'CS002';
                end if;
            end if;
            if is_guarded then
                counts_now := countersign.untracked_counts(false, reached);
                conflict := case when counts_now <> counts
                            then countersign.untracked_damage(counts, counts_now, evidence -> 'untracked', relations) end;
                if conflict is not null then
                    raise exception 'the undo reaches other rows' using errcode = 'CS002';
                end if;
                written := (select json_agg(countersign.table_name(n.key::oid)) from jsonb_each(counts_now) n
                            where n.value is distinct from counts -> n.key);
            end if;
            return json_strip_nulls(json_build_object('status', 'ok', 'rows', total, 'set_again', set_again, 'written', written));
        exception
            when transaction_rollback or lock_not_available or insufficient_resources or operator_intervention or system_error then
                raise;
            when sqlstate 'CS002' then
                refusal := case when kinds = 'R' then coalesce(refusal, conflict) else conflict end;
                if histories <> '{}' and not (grown @> histories) then
                    grown := grown || histories;
                    continue;
                end if;
                kinds := case when kinds <> 'R' then 'R' end;
            when insufficient_privilege then
                refusal := json_build_array(json_build_object('code', 'not_permitted', 'table', (tables[1]).name, 'message', sqlerrm));
                kinds := null;
            when integrity_constraint_violation then
                get stacked diagnostics broken_name = constraint_name;
                conflict := json_build_array(json_build_object(
                    'code', case when sqlstate <> '23503' then 'constraint' when kind in ('D', 'M') then 'referenced' else 'parent_missing' end,
                    'constraint', broken_name, 'message', sqlerrm));
                refusal := case when kinds = 'R' then coalesce(refusal, conflict) else conflict end;
                kinds := case kinds when 'MIUD' then 'MDUI' when 'MDUI' then 'DMUI' when 'DMUI' then 'UMDI' when 'UMDI' then 'DIU' when 'DIU' then 'R' end;
            -- A trigger that refuses.
            when others then
                refusal := coalesce(refusal, json_build_array(json_build_object('code', 'side_effects', 'message', sqlerrm)));
                kinds := case when kinds <> 'R' then 'R' end;
        end;
    end loop;
    return json_build_object('status', 'conflict', 'rows', cardinality(net), 'conflicts', refusal);
end $$;
comment on function countersign.restore_rows(uuid[], countersign.net_change[], uuid, bigint, jsonb, text) is
    'Puts rows back that are as the writes left them, in one order or another, and compares what happened. `undo` is the write that does it.';

create function countersign.restore_kind(
    kind text, net countersign.net_change[], sources integer[], tables countersign.tracked[], depth jsonb, moves jsonb, grown oid[], path text,
    may_exist boolean
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    place    integer;
    t        countersign.tracked;
    images   text[];
    matched  text[];
    total    bigint := 0;
begin
    if kind = 'M' and moves is null then
        return 0;
    end if;
    for place in
        select n from generate_subscripts(tables, 1) n
        where (tables[n]).relation <> all (grown)
        order by coalesce((depth ->> (tables[n]).relation::text)::int, 0) * case when kind = 'D' then -1 else 1 end, (tables[n]).relation, n
    loop
        t := tables[place];
        if kind = 'M' then
            select array_agg(b.before order by b.key), array_agg(w.after order by b.key) into images, matched
            from unnest(net) w
            join unnest(net) b on b.relation = w.relation and moves ->> (w.relation || ' ' || w.key) = b.relation || ' ' || b.key
            where w.shape = sources[place];
        else
            select array_agg(coalesce(w.before, w.after) order by w.key), array_agg(coalesce(w.after, w.before) order by w.key)
            into images, matched
            from unnest(net) w
            where w.shape = sources[place] and case when w.before is null then kind = 'D' when w.after is null then kind = 'I'
                                                      when countersign.is_remade(t, w.before, w.after) then kind in ('D', 'I') else kind = 'U' end
              and (moves is null or not (moves ? (w.relation || ' ' || w.key) or exists (
                   select from jsonb_each_text(moves) m where m.value = w.relation || ' ' || w.key)));
        end if;
        if images is not null then
            total := total + countersign.apply_images(t, kind, images, matched, path, may_exist);
        end if;
    end loop;
    return total;
end $$;
comment on function countersign.restore_kind(text, countersign.net_change[], integer[], countersign.tracked[], jsonb, jsonb, oid[], text, boolean) is
    'One step of an order: the rows that come back (I), go (D), change (U), or get their key back (M).';

create function countersign.recorded_steps(writes uuid[], until_position bigint)
returns table (shape integer, op "char", before text, after text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
    return query
    select e.shape, e.op, case when e.unchanged is null then e.before else countersign.full_before_image(e.before, e.after, e.unchanged) end, e.after
    from countersign.effect e join countersign.tracked t on t.shape = e.shape and not t.is_log
    where e.correlation_id = any (writes) and e.op <> 'N' and (until_position = 0 or e.position <= until_position)
    order by e.position desc;
end $$;
comment on function countersign.recorded_steps(uuid[], bigint) is 'The changes of writes, the last one first.';

create function countersign.restore_backwards(writes uuid[], until_position bigint, grown oid[], path text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    step   record;
    t      countersign.tracked;
    total  bigint := 0;
begin
    for step in select s.* from countersign.recorded_steps(writes, until_position) s loop
        if t.shape is distinct from step.shape then
            select n.* into t from countersign.tracked k cross join lateral countersign.tracked_now(k) n where k.shape = step.shape;
        end if;
        continue when t.relation = any (grown);
        if countersign.is_remade(t, step.before, step.after) then
            perform countersign.apply_images(t, 'D', array[step.before], array[step.after], path);
        end if;
        total := total + countersign.apply_images(t, case when step.op = 'I' then 'D'
            when step.op = 'D' or countersign.is_remade(t, step.before, step.after) then 'I' else 'U' end,
            array[coalesce(step.before, step.after)], array[coalesce(step.after, step.before)], path, true);
    end loop;
    return total;
end $$;
comment on function countersign.restore_backwards(uuid[], bigint, oid[], text) is 'Puts the recorded changes back one by one, the last one first.';

create function countersign.restore_disturbed(
    net countersign.net_change[], sources integer[], tables countersign.tracked[], evidence jsonb, grown oid[], path text
) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    t          countersign.tracked;
    images     text[];
    matched    text[];
    free       text[];
    disturbed  bigint;
begin
    for pass in 1 .. 2 loop
        disturbed := 0;
        for place in 1 .. cardinality(tables) loop
            t := tables[place];
            continue when t.relation = any (grown);
            free := case when evidence -> 'assigned' ? t.relation::text then array(
                select c from unnest(t.columns, t.numbers) u (c, number)
                where not (evidence -> 'assigned' -> t.relation::text @> to_jsonb(number))) else '{}' end;
            with w as materialized (
                select x.before, x.after is null as is_back, row_number() over () as n from unnest(net) x
                where x.shape = sources[place] and x.before is not null and (pass = 1 or x.after is not null)
            )
            select array_agg(w.before), array_agg(r.image) into images, matched
            from countersign.current_rows(t, array(select w.before from w order by w.n), false, path) r
            join w on w.n = r.n
            where r.image is distinct from w.before
              and not countersign.same_image(t, r.image, w.before, t.sensitive || t.maintained || t.unstored || case when w.is_back then '{}' else free end);
            if images is not null then
                disturbed := disturbed + countersign.apply_images(t, 'U', images, matched, path);
            end if;
        end loop;
        exit when disturbed = 0;
    end loop;
end $$;
comment on function countersign.restore_disturbed(countersign.net_change[], integer[], countersign.tracked[], jsonb, oid[], text) is
    'Triggers may have changed a row after it was put back, such as a total that one keeps: these rows once more. Not for a column that only triggers set.';

create function countersign.is_declared_undo(a countersign.attempt, part integer) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(a.tool_name = c.tool and a.params::jsonb @> c.params - 'idempotency_key', false)
    from countersign.record r
    cross join lateral (
        select coalesce(r.rollback -> 'undo_calls' -> (part - 1) ->> 'tool', case when part is null then r.rollback ->> 'undo_tool' end) as tool,
               coalesce(r.rollback -> 'undo_calls' -> (part - 1) -> 'params', case when part is null then r.rollback -> 'undo_params' end)::jsonb
               as params
    ) c
    where r.correlation_id = a.undo_of[1]
$$;
comment on function countersign.is_declared_undo(countersign.attempt, integer) is
    'Whether the call is the one by which the write said that it is undone, or that part of it.';

create function countersign.prove_inverse(writes uuid[], undos uuid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    wrong  json := (countersign.deviations(writes, undos, 0, countersign.evidence_of(writes))).wrong;
begin
    if wrong is not null then
        raise exception 'the rows are not what they were before the write' using errcode = 'CS002', detail = wrong::text;
    end if;
end $$;
comment on function countersign.prove_inverse(uuid[], uuid[]) is
    'CS002 unless the recorded effects of undos are the exact inverse of what they undo, but for maintained columns, log tables, and what `deviations` lets pass.';

create function countersign.is_single_inverse(undone uuid[], undo uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return cardinality(undone) = 1
       and (select count(*) from (select from countersign.effect e where e.correlation_id = any (undone || undo) limit 3) e) = 2
       and exists (select from countersign.effect d join countersign.effect u on u.correlation_id = undo
                   where d.correlation_id = undone[1] and d.relation = u.relation and d.key = u.key
                     and d.key_before is null and u.key_before is null and d.unchanged is null and u.unchanged is null
                     and (d.before, d.after, d.secret_before, d.secret_after)
                         is not distinct from (u.after, u.before, u.secret_after, u.secret_before));
end $$;
comment on function countersign.is_single_inverse(uuid[], uuid) is
    'Whether a write made one change, and its undo the exact inverse and nothing else: the most frequent case of `prove_inverse`.';

create function countersign.prove_undo(a countersign.attempt) returns void
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    part     integer := substring(a.idempotency_key from '/([0-9]{1,4})$');
    undos    uuid[] := array[a.correlation_id];
    undone   json;
begin
    if (select count(*) from countersign.record r
        where r.correlation_id = any (a.undo_of) and r.status = 'success'
          and (a.by_operator or r.account_id = a.account_id
               -- A decision without a proposal: an operator's undo, which only people reverse.
               and not (r.undo_of is not null and r.approval is not null and r.approval -> 'proposal_id' is null)))
       <> cardinality(a.undo_of)
    then
        raise exception 'only successes of the same account that no person made can be undone' using errcode = 'CS002', detail = '[{"code": "not_permitted"}]';
    end if;
    select json_agg(json_build_object('code', 'already_reversed', 'write', countersign.describe_write(v.correlation_id),
                                      'changed_by', countersign.describe_write(v.reversed_by)))
    into undone from countersign.reversal v where v.correlation_id = any (a.undo_of);
    if undone is not null then
        raise exception 'the write was undone before' using errcode = 'CS002', detail = undone::text;
    end if;
    if part is not null then
        if not countersign.is_declared_undo(a, part) then
            raise exception 'the call is not part % of the undo that the write declares', part
                using errcode = 'CS002', detail = '[{"code": "not_permitted"}]';
        end if;
        -- The calls that end together see each other: whichever is the last one marks the write.
        perform from countersign.record r where r.correlation_id = a.undo_of[1] for no key update;
        insert into countersign.reversal_part (correlation_id, part, reversed_by) values (a.undo_of[1], part, a.correlation_id);
        if (select count(*) from countersign.reversal_part p where p.correlation_id = a.undo_of[1])
           < (select json_array_length(r.rollback -> 'undo_calls') from countersign.record r where r.correlation_id = a.undo_of[1])
        then
            return;
        end if;
        undos := array(select p.reversed_by from countersign.reversal_part p where p.correlation_id = a.undo_of[1]);
    end if;
    if part is not null or not countersign.is_single_inverse(a.undo_of, a.correlation_id) then
        if exists (select from countersign.effect e where e.correlation_id = any (a.undo_of)) then
            perform countersign.prove_inverse(a.undo_of, undos);
        end if;
        if part is null and not (cardinality(a.undo_of) = 1 and countersign.is_declared_undo(a, null))
           and exists (select from countersign.record r where r.correlation_id = any (a.undo_of) and r.rows_affected is distinct from 0
                       and not exists (select from countersign.effect e where e.correlation_id = r.correlation_id))
        then
            raise exception 'no effects of the write are on record, and the call is not the undo that it declares'
                using errcode = 'CS002', detail = '[{"code": "image_missing"}]';
        end if;
    end if;
    -- 23505 of reversal_pkey: it was undone meanwhile.
    insert into countersign.reversal (correlation_id, reversed_by) select w, a.correlation_id from unnest(a.undo_of) w;
end $$;
comment on function countersign.prove_undo(countersign.attempt) is
    'Marks the writes of an undo as reversed. CS002 unless its recorded effects are their exact inverse; without effects, unless it is the '
    'call that the write declares.';

create function countersign.seen_rows(write uuid) returns setof countersign.net_change
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    select e.relation, e.shape, e.key, e.after, e.after, e.secret_after, e.secret_after, null::text, e.position, e.correlation_id
    from countersign.effect e join countersign.tracked t on t.shape = e.shape and not t.is_log
    where e.correlation_id = write and e.op = 'N'
      and not exists (select from countersign.effect o where o.correlation_id = write and o.relation = e.relation and o.key = e.key and o.op <> 'N')
$$;
comment on function countersign.seen_rows(uuid) is 'The rows that a write found as it wanted them, and did not change.';

create function countersign.changed_since(write uuid, path text default pg_catalog.current_setting('search_path')) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    effective_as  uuid := (countersign.reversal_state(write)).effective_as;
begin
    if not exists (select from countersign.effect e where e.correlation_id = effective_as) then
        return null;
    end if;
    return (select c from unnest(countersign.undo_conflicts(array[effective_as], array(
                select w from countersign.net_changes(array[effective_as]) w union all select w from countersign.seen_rows(effective_as) w), false, path)) c
            where c ->> 'code' in ('changed_since', 'deleted_since', 'key_taken') limit 1);
end $$;
comment on function countersign.changed_since(uuid, text) is
    'Compares the rows of a write with what it left, with the rights of the caller: the first that is another now. Null: all are the same, or '
    'no effects are on record.';

---------------------------------------------------------------------------------------------------------------- what a write can promise

create function countersign.facts_of_write(write uuid) returns countersign.write_facts
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    facts  countersign.write_facts;
begin
    select coalesce(bool_or(true), false),
           coalesce(bool_or(not (t.is_current and countersign.has_current_shape(t))), false),
           coalesce(bool_or(not t.is_log and (
               row_security_active(w.relation)
               or not has_table_privilege(w.relation, case w.op when 'I' then 'DELETE' when 'D' then 'INSERT' else 'UPDATE' end)
               or cardinality(t.fixed) > cardinality(t.computed) or cardinality(t.columns) > 832
               or exists (select from pg_constraint n where n.conrelid = w.relation and not n.convalidated)
               or exists (select from pg_class c where c.oid = w.relation and (c.relhassubclass or c.relhasrules))
               or exists (select from pg_trigger g left join pg_constraint f on f.oid = g.tgconstraint and g.tgisinternal
                          where g.tgrelid = w.relation and g.tgenabled <> 'D' and case
                              when g.tgisinternal then (w.op in ('I', 'D') or w.is_moved) and f.confrelid = w.relation
                                   and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd'))
                                   and not exists (select from countersign.tracked k where k.is_current and k.relation = f.conrelid)
                              -- Those of the write itself, and those that its undo meets.
                              else g.tgname not like '!countersign%' and (g.tgtype & 1 = 0 or g.tgtype & case when w.op in ('I', 'D') then 4 + 8 else 16 end <> 0) end))), false),
           case when bool_and(t.is_log) or bool_or(not t.is_log and t.key_columns is null and w.op <> 'N') then 'irreversible'
                when bool_or(not t.is_log and w.has_secret_change) then 'image_missing' end,
           array_agg(distinct t.name) filter (where t.is_log),
           coalesce(jsonb_object_agg(w.relation::text, a.columns) filter (where a.columns is not null), '{}')
    into facts
    from (select e.relation, e.shape, e.op, bool_or(e.key_before is not null) as is_moved,
                 bool_or(e.op in ('U', 'D') and e.secret_before is distinct from e.secret_after) as has_secret_change
          from countersign.effect e where e.correlation_id = write group by 1, 2, 3) w
    join countersign.tracked t on t.shape = w.shape
    cross join lateral (select case when w.op = 'U' then countersign.assigned_columns(w.relation)::jsonb end as columns) a;
    return facts;
end $$;
comment on function countersign.facts_of_write(uuid) is 'Of a write in its own transaction, with the rights of the caller.';

create function countersign.try_undo(write uuid, evidence jsonb, path text) returns json
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    net        countersign.net_change[] := array(select w from countersign.net_changes(array[write]) w);
    last       bigint;
    conflicts  json[];
    outcome    json;
begin
    if cardinality(net) = 0 then
        return json_build_object('status', 'ok', 'rows', 0);
    elsif cardinality(net) > 10000 then
        return null;
    end if;
    conflicts := countersign.undo_conflicts(array[write], net, false, path);
    if cardinality(conflicts) > 0 then
        return json_build_object('status', 'conflict', 'conflicts', array_to_json(conflicts));
    end if;
    select max(e.position) into last from countersign.effect e where e.correlation_id = write;
    begin
        outcome := countersign.restore_rows(array[write], net, write, last, evidence, path);
        raise exception 'it was a trial' using errcode = 'CS006';
    exception
        when sqlstate 'CS006' then
            return outcome;
        -- Others are in the way for now.
        when lock_not_available or transaction_rollback then
            return null;
    end;
end $$;
comment on function countersign.try_undo(uuid, jsonb, text) is
    'Undoes a write within its own transaction, and takes that back: what `undo` would answer now. Null: it was not tried.';

create function countersign.receipt(said json, facts countersign.write_facts, affected bigint, untracked jsonb, trial json) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    is_declared  boolean := coalesce(said ->> 'undo_tool' <> 'undo_mutation', false);
    is_seen      boolean := facts.has_effects or affected = 0 and untracked is null;
    reason       text := coalesce(facts.reason, case when not is_seen then 'image_missing' end, trial -> 'conflicts' -> 0 ->> 'code');
    others       text[];
    receipt      jsonb;
begin
    if said is null or said ->> 'reversible' <> 'true' then
        return said;
    end if;
    others := array(select n from (select countersign.table_name(u.key::oid) as n from jsonb_each(untracked) u
                                   union select unnest(facts.logs)
                                   union select json_array_elements_text(trial -> 'written')) o where n is not null order by 1);
    if said ->> 'undo_tool' is null then
        return said;
    elsif reason is not null and not is_declared then
        return json_build_object('reversible', false, 'checked', true, 'reason', reason, 'note',
            case reason
                when 'image_missing' then case when is_seen then 'It cannot be undone: it changed a sensitive column, whose values are not on record.'
                                               else 'It cannot be undone: its tables are not tracked (countersign track).' end
                when 'irreversible' then 'It cannot be undone: it wrote a table without a key, or only log tables.'
                else concat('It cannot be undone as its tables are: ', coalesce(trial -> 'conflicts' -> 0 ->> 'message', reason), '.') end);
    end if;
    receipt := said::jsonb || jsonb_build_object('checked', facts.has_effects and reason is null or affected = 0 and is_seen);
    -- Triggers changed or deleted rows that nobody has recorded, or the write was too large to be tried.
    if exists (select from jsonb_each(untracked) u where u.value ->> 1 <> '0' or u.value ->> 2 <> '0') or facts.needs_trial and trial is null and reason is null then
        receipt := receipt || '{"checked": false}';
    end if;
    return json_strip_nulls(json_build_object(
        'reversible', true, 'undo_tool', receipt -> 'undo_tool', 'undo_params', receipt -> 'undo_params', 'undo_calls', receipt -> 'undo_calls',
        'checked', receipt -> 'checked', 'reason', reason, 'not_restored', case when others <> '{}' then to_json(others) end,
        'set_by_triggers', trial -> 'set_again' -> 'columns', 'note', receipt -> 'note'));
end $$;
comment on function countersign.receipt(json, countersign.write_facts, bigint, jsonb, json) is
    'How a write can be undone: what its tool says, as far as it is so.';

create function countersign.evidence_of_undo(evidence jsonb, undone uuid[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    before  jsonb := countersign.evidence_of(undone) -> 'assigned';
begin
    if undone is null or evidence -> 'assigned' is null or before is null then
        return evidence;
    end if;
    -- The undo has set the columns of triggers as well; they are still theirs.
    return jsonb_set(evidence, '{assigned}', (
        select jsonb_object_agg(n.key, case when before ? n.key then (
                   select coalesce(jsonb_agg(c), '[]') from jsonb_array_elements(n.value) c where before -> n.key @> c) else n.value end)
        from jsonb_each(evidence -> 'assigned') n));
end $$;
comment on function countersign.evidence_of_undo(jsonb, uuid[]) is 'The evidence of a write; if it is an undo: a column that only triggers set in the write is none that the undo set.';
