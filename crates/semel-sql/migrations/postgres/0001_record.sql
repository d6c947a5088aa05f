-- One row per identity. A store compares v … expires_at and carries rest; namespace, kind and rule are for lists and people.
-- Renewals touch lease_until alone, which no index has: with room in the page they stay there (HOT).
CREATE TABLE semel_record (
    id          bytea    PRIMARY KEY CHECK (length(id) = 32),
    v           smallint NOT NULL,              -- format; a row of another one reads as in flight and is not touched
    state       smallint NOT NULL,              -- 0 free, 1 in flight, 2 done, 3 unknown, 4 parked
    flags       smallint NOT NULL,              -- 1 issued, 2 takeover, 4 body kept, 8 watched, 16 adopted
    fp_v        smallint NOT NULL,              -- fingerprint: algorithm, 0 none
    fp          bytea,                          -- fingerprint: digest, 32 bytes; none while free
    owner       bytea    NOT NULL,              -- of the last grant, 16 bytes
    fence       bigint   NOT NULL,              -- of the last grant, µs; 0 none
    attempt     integer  NOT NULL,
    lease_until bigint   NOT NULL,              -- µs since 1970; unknown: since when; token: how far it may be extended
    expires_at  bigint   NOT NULL,              -- µs since 1970; from then on the row counts as absent
    namespace   text     NOT NULL,              -- http:orders
    kind        text     NOT NULL,              -- k key, t token, d window, m message
    rule        text     NOT NULL,
    rest        bytea    NOT NULL               -- the masked key, digests of the caller, the outcome
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE INDEX semel_record_expires_at ON semel_record (expires_at);

-- What kind of deployment the records belong to: the first writer wins.
CREATE TABLE semel_mark (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    mark bytea   NOT NULL
);

-- What people did to records.
CREATE TABLE semel_audit (
    n    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    line text        NOT NULL
);
