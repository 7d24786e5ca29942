-- $1: a LIKE pattern; $2: one for names that begin like it; $3: how many.
select name from space where name ilike $1 collate "default"
order by name not ilike $2 collate "default", name limit $3::int
