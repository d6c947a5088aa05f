-- Semel on MySQL and MariaDB, version 1.
--
-- DDL commits by itself: where this stops in the middle, some of the tables are there and the row at the end is not.
-- That is "not migrated". Apply it again: every statement can be repeated, and what was made is left as it is.

CREATE TABLE IF NOT EXISTS semel_record (
    id          BINARY(32)   NOT NULL COMMENT 'identity: a keyed digest',
    v           SMALLINT     NOT NULL COMMENT 'format version',
    state       SMALLINT     NOT NULL COMMENT '0 free, 1 in flight, 2 done, 3 unknown, 4 parked',
    flags       SMALLINT     NOT NULL COMMENT '1 issued, 2 takeover, 4 body kept, 8 watched, 16 adopted',
    fp_v        SMALLINT     NOT NULL COMMENT 'fingerprint: algorithm',
    fp          BINARY(32)   NULL     COMMENT 'fingerprint: digest',
    owner       BINARY(16)   NOT NULL COMMENT 'of the last grant',
    fence       BIGINT       NOT NULL COMMENT 'of the last grant; 0: none',
    attempt     INT          NOT NULL,
    lease_until BIGINT       NOT NULL COMMENT 'microseconds since 1970, by this server''s clock',
    expires_at  BIGINT       NOT NULL COMMENT 'microseconds since 1970, by this server''s clock',
    rest        LONGBLOB     NOT NULL COMMENT 'who it is for people, and the outcome',
    namespace   VARCHAR(80)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind        CHAR(1)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'k key, t token, d window, m message',
    rule        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (id),
    KEY semel_record_ends (expires_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS semel_mark (
    id   TINYINT        NOT NULL COMMENT 'always 1',
    mark VARBINARY(255) NOT NULL COMMENT 'whose records these are, and since when',
    PRIMARY KEY (id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS semel_audit (
    n    BIGINT     NOT NULL AUTO_INCREMENT,
    at   BIGINT     NOT NULL COMMENT 'microseconds since 1970',
    line MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'what a person did',
    PRIMARY KEY (n)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS semel_schema (
    version    INT    NOT NULL,
    applied_at BIGINT NOT NULL COMMENT 'microseconds since 1970',
    PRIMARY KEY (version)
) ENGINE = InnoDB;

INSERT INTO semel_schema (version, applied_at)
SELECT 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM DUAL
 WHERE NOT EXISTS (SELECT 1 FROM semel_schema WHERE version = 1);
