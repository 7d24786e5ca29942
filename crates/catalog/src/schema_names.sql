select name, pg_catalog.quote_ident(name) as shown from space order by name
