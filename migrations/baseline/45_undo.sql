-- Undo of one write or of several at once:
--
--   the attempt with undo_of = writes | claim | undo(writes) -> {"status": "conflict", ..}: ROLLBACK, fail with this detail
--                                             | SET CONSTRAINTS ALL IMMEDIATE | finish | COMMIT
--
-- `undo` works with the rights of the login, so triggers and policies apply as to any write. The statements that read and restore rows run as
-- the role of the caller, if it has one: the setting countersign.role, which `execute_in`, `select_in` and `settle` enter and leave. The proof (`prove_undo`, called by
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
        'from rows from (pg_catalog.unnest($1)) with ordinality u (%s, ord) join %s "!t" on %s order by %s %s',
        countersign.row_image_expression(t), case when current_setting('track_commit_timestamp') = 'on' then 'pg_catalog.pg_xact_commit_timestamp("!t".xmin)' else 'null::timestamptz' end,
        countersign.image_columns(t, 'c'), countersign.only(t), countersign.key_match(t, 'c'),
        (select string_agg(format('"!t".%I', k), ', ') from unnest(t.key_columns) k), case when is_locking then 'for update of "!t"' else '' end);
begin
    return query execute format('select r.* from countersign.select_in($1, $2, countersign.cast_images(null::%s, $3)) r', t.name)
        using path, query, images;
end $$;
comment on function countersign.current_rows(countersign.tracked, text[], boolean, text) is
    'The rows that have the keys of images, as they are now; locked in the order of their keys if asked.';

-- A role of a caller may not call functions of the ledger, so the images are rows of the table by now.
create function countersign.select_in(path text, query text, images anyarray) returns table (n bigint, image text, changed_at timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    of_login   text := current_setting('role');
    of_caller  text := nullif(current_setting('countersign.role', true), '');
begin
    -- Until the end of the function: what policies call finds what it finds in the session.
    perform set_config('search_path', path, true);
    if of_caller is not null then
        perform pg_catalog.set_config('role', of_caller, true);
    end if;
    return query execute query using images;
    if of_caller is not null then
        perform pg_catalog.set_config('role', of_login, true);
    end if;
end $$;
comment on function countersign.select_in(text, text, anyarray) is
    'Runs a query of `current_rows` with the search_path of the session, as the role of the caller.';

create function countersign.execute_in(path text, statement text, images anyarray, matched anyarray) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    of_login   text := current_setting('role');
    of_caller  text := nullif(current_setting('countersign.role', true), '');
    done       bigint;
begin
    -- Until the end of the function: triggers of the table find what they find in any statement of the session.
    perform set_config('search_path', path, true);
    if of_caller is not null then
        perform pg_catalog.set_config('role', of_caller, true);
    end if;
    execute statement using images, matched;
    get diagnostics done = row_count;
    if of_caller is not null then
        perform pg_catalog.set_config('role', of_login, true);
    end if;
    return done;
end $$;
comment on function countersign.execute_in(text, text, anyarray, anyarray) is
    'Runs a statement of `undo` with the search_path of the session, as the role of the caller.';

create function countersign.may_hide_rows(relation oid) returns boolean language sql stable as $$
    select row_security_active(relation)
        or current_setting('countersign.role', true) <> '' and (select c.relrowsecurity from pg_class c where c.oid = relation)
$$;
comment on function countersign.may_hide_rows(oid) is 'Whether a policy may hide rows of the table from the statements of `undo`.';

create function countersign.rows_for_caller(
    account text, shapes integer[], images text[], path text default pg_catalog.current_setting('search_path')
) returns table (n bigint, image text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    recorded  countersign.tracked;
begin
    perform set_config('countersign.account_id', account, true);
    for recorded in
        select k.* from countersign.tracked k where k.shape = any (shapes) and k.is_current and k.key_columns is not null and countersign.has_current_shape(k)
    loop
        begin
            return query
            with asked as materialized (
                select i.n, i.image, row_number() over (order by i.n) as place from unnest(shapes, images) with ordinality i (shape, image, n)
                where i.shape = recorded.shape and i.image is not null
            )
            select a.n, r.image
            from countersign.current_rows(countersign.tracked_now(recorded), array(select a.image from asked a order by a.place), false, path) r
            join asked a on a.place = r.n;
        exception when others then
            -- A privilege that the caller does not have, or a policy that fails: the caller reads nothing of this table.
            continue;
        end;
    end loop;
end $$;
comment on function countersign.rows_for_caller(text, integer[], text[], text) is
    'The rows that have the keys of images of these shapes, as they are now, if the caller can read all of their columns. Runs with the '
    'rights of the caller.';

create function countersign.apply_images(
    t countersign.tracked, kind text, images text[], matched text[], path text, may_exist boolean default false
) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
    given      text := format('rows from (pg_catalog.unnest($1), pg_catalog.unnest($2)) u (%s, %s)',
                              countersign.image_columns(t, 'c'), countersign.image_columns(t, 'm'));
    runs       text := format('select countersign.execute_in($1, $2, countersign.cast_images(null::%1$s, $3), countersign.cast_images(null::%1$s, $4))',
                              t.name);
    changed    bigint;
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
            execute runs into changed using path, statement, part.images, part.matched;
            done := done + changed;
        end loop;
        return done;
    end if;
    execute runs into changed using path, statement, images, matched;
    return changed;
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
       or current_setting('countersign.role', true) <> ''
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

create function countersign.undone_before(write uuid) returns json
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    standing  record := countersign.reversal_state(write);
begin
    if standing.effective_as = write then
        return null;
    end if;
    return (jsonb_build_object('code', 'already_reversed', 'write', countersign.describe_write(write),
                'changed_by', countersign.describe_write(coalesce(standing.effective_as, standing.reversed_by)))
            || case when standing.effective_as is null then '{}'
                    else jsonb_build_object('message', concat('it is in force again by ', standing.effective_as, ': undo that')) end)::json;
end $$;
comment on function countersign.undone_before(uuid) is
    'A write that was undone, as a conflict: by what, or what has made it again since; null for any other.';

-- The sub-selects look each write up by an index, however many others the ledger has.
create function countersign.refused_writes(writes uuid[]) returns json[]
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
    return (
        select array_agg(coalesce(countersign.undone_before(r.write), json_build_object(
                   'code', case when r.status <> 'success' or r.is_only_logged or r.rows_affected = 0 then 'irreversible' else 'image_missing' end,
                   'write', coalesce(countersign.describe_write(r.write), json_build_object('correlation_id', r.write)), 'changed_by', null)))
        from (select w.write, r.status, r.rows_affected,
                     exists (select from countersign.reversal v where v.correlation_id = w.write) as is_reversed,
                     (select e.position from countersign.effect e where e.correlation_id = w.write limit 1) as position,
                     r.evidence::jsonb ? 'untracked' as has_untracked, r.rollback ->> 'reversible' = 'false' as said_no,
                     (select bool_and(t.is_log) from countersign.effect e join countersign.tracked t on t.shape = e.shape
                      where e.correlation_id = w.write) as is_only_logged
              from unnest(writes) w (write) left join countersign.record r on r.correlation_id = w.write offset 0) r
        where r.status is distinct from 'success' or r.is_reversed or r.is_only_logged
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
    conflicts  json[] := array(
        select json_build_object('code', 'erased', 'table', k.name, 'key', w.key::json, 'write', countersign.describe_write(w.writer))
        from unnest(net) w join countersign.tracked k on k.shape = w.shape where w.obstacle = 'erased');
    differing  json[];
    broken_name  text;
    rows       countersign.net_change[];
begin
    for recorded in
        select distinct on (k.relation, k.shape) k.* from unnest(net) w join countersign.tracked k on k.shape = w.shape
        where w.obstacle is distinct from 'erased' order by k.relation, k.shape
    loop
        t := countersign.tracked_now(recorded);
        if recorded.key_columns is null or t.shape is null then
            conflicts := conflicts || json_build_object('code', case when recorded.key_columns is null then 'irreversible' else 'schema_changed' end,
                                                        'table', coalesce(countersign.table_name(recorded.relation), recorded.name));
            continue;
        end if;
        rows := array(select w from unnest(net) w where w.shape = recorded.shape and w.obstacle is distinct from 'erased' order by w.key);
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
                        case when countersign.may_hide_rows(t.relation) then 'not_permitted' else 'deleted_since' end
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
            when insufficient_privilege then
                differing := array[json_build_object('code', 'not_permitted', 'table', t.name, 'message', sqlerrm)];
            -- A value that a domain does not take any more.
            when integrity_constraint_violation then
                get stacked diagnostics broken_name = constraint_name;
                differing := array[json_build_object('code', 'constraint', 'table', t.name, 'constraint', broken_name, 'message', sqlerrm)];
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
