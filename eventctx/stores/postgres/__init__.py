"""A store on a PostgreSQL server, for agents of many machines."""
