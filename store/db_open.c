/* Opens a store. Reads the file's header before SQLite touches it, refuses other programs' files,
 * and then runs migrations. A new store is built under a temporary name and gets its own name when
 * it is complete, so no process sees an incomplete store. If two processes create it at the same
 * time, the first one's file stays. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "planner/base/log.h"
#include "store/db_private.h"

enum {
    BUSY_MS = 10000,
    HEADER_BYTES = 100, /* see https://www.sqlite.org/fileformat.html section 1.3 */
    QUICK_CHECK_MAX_BYTES = 16 << 20
};

typedef struct Opening {
    const char *path;
    bool read_only;
    const char *const *migrations;
    uint32_t n;
    /* statements that create the tables of a new file, ended by NULL; NULL: run all migrations
     * instead */
    const char *const *fresh;
    Diag *d;
} Opening;

static bool refuse(const Opening *o, const char *rule, const char *why)
{
    Loc loc = {.file = arena_dup(o->d->arena, o->path)};
    return diag_error(o->d, FAULT_store, rule, loc, "%s", why);
}

static bool is_newer(const Opening *o, int64_t version)
{
    if (version <= (int64_t)o->n) return false;
    Loc loc = {.file = arena_dup(o->d->arena, o->path)};
    diag_error(o->d, FAULT_store, "store-newer", loc,
               "the store has version %" PRId64 ", this tandem knows up to %" PRIu32, version,
               o->n);
    diag_hint(o->d, "use the newer tandem, or another --db FILE");
    return true;
}

static uint32_t big_endian(const unsigned char *at, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++) value = value << 8 | at[i];
    return value;
}

/* True if the store has a non-empty log file: a write-ahead log or a rollback journal. Pages in a
 * log may be missing in the store's file. */
static bool has_log(const Opening *o)
{
    static const char *const ending[] = {"-wal", "-journal"};
    struct stat about;
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (stat(arena_print(o->d->arena, "%s%s", o->path, ending[i]), &about) == 0 &&
            about.st_size > 0)
            return true;
    return false;
}

/* Checks the file by its first 100 bytes and its length, without SQLite and without writing.
 * Another process may be copying its write-ahead log into the file at this moment; it starts with
 * the first page and deletes the log last. Therefore read the header first, then look for the log,
 * then get the length: if no log is there, the file is complete. */
static bool header_is_ours(const Opening *o)
{
    unsigned char header[HEADER_BYTES];
    struct stat about;
    int fd = open(o->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return refuse(o, "store-open", strerror(errno));
    ssize_t n = pread(fd, header, sizeof header, 0);
    const bool logged = has_log(o);
    const bool known = fstat(fd, &about) == 0;
    close(fd);
    if (!known) return refuse(o, "store-open", strerror(errno));
    const off_t size = about.st_size;
    if (size == 0) {
        refuse(o, "store-damaged", "the file is empty, so it is no store");
        diag_hint(o->d, "remove it; the next command then makes a new store");
        return false;
    }
    if (n < HEADER_BYTES || memcmp(header, "SQLite format 3", 16) != 0)
        return refuse(o, "store-foreign", "this is not an SQLite file");
    if (big_endian(header + 68, 4) != DB_APPLICATION_ID)
        return refuse(o, "store-foreign", "this is another program's SQLite file");
    uint32_t page = big_endian(header + 16, 2);
    uint64_t pages = big_endian(header + 28, 4);
    if (page == 1) page = 65536;
    if (!logged && (uint64_t)size < pages * page)
        return refuse(o, "store-damaged", "the file is shorter than its header states");
    return !is_newer(o, (int64_t)big_endian(header + 60, 4));
}

/* True if processes can share memory through a file of this file system, which a write-ahead log
 * needs. Network file systems cannot. The magic numbers come from linux/magic.h and from the
 * sources of the file systems. */
static bool has_shared_memory(const char *path)
{
    static const uint32_t without[] = {
        0x6969 /* NFS */,        0x517B /* SMB */,      0xFF534D42 /* CIFS */,
        0xFE534D42 /* SMB2 */,   0x65735546 /* FUSE */, 0x01021997 /* 9p */,
        0x0BD00BD0 /* Lustre */, 0x47504653 /* GPFS */, 0x00C36400 /* Ceph */,
        0x19830326 /* BeeGFS */, 0x5346414F /* AFS */,  0x73757245 /* Coda */,
    };
    struct statfs about;
    if (statfs(path, &about) != 0) return false;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if ((uint32_t)about.f_type == without[i]) return false;
    return true;
}

static const char *folder_of(const char *path, Arena *arena)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? "." : arena_copy(arena, path, (size_t)(slash - path) + 1);
}

static bool is_there(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

/* True if a write-ahead log exists beside the store, or can be created there. Otherwise errno says
 * why not. */
static bool takes_a_log(const char *path, Arena *arena)
{
    return is_there(arena_print(arena, "%s-wal", path)) ||
           access(folder_of(path, arena), W_OK) == 0;
}

/* Checks that the store and a log beside it can be written. SQLite opens a store even if it cannot
 * write there; without this check, the error would come only when the first row is written, after a
 * long measurement. */
static bool may_be_written(const Opening *o)
{
    Arena *arena = o->d->arena;
    struct stat about;
    const char *what = "it";
    bool may = access(o->path, W_OK) == 0 || errno == ENOENT;
    /* the log of a symbolic link is created beside the link's target, so the link's own folder does
     * not matter */
    if (may && (lstat(o->path, &about) != 0 || !S_ISLNK(about.st_mode))) {
        what = "its folder";
        may = takes_a_log(o->path, arena);
    }
    if (may) return true;
    refuse(o, "store-open", arena_print(arena, "%s cannot be written: %s", what, strerror(errno)));
    diag_hint(o->d, "use --db FILE to name a file that can be written");
    return false;
}

/* If no process can write to the store now, returns the URI with which SQLite reads it without a
 * log (immutable=1); otherwise returns NULL. Readers of a log need a shared-memory file beside the
 * store. On a read-only medium this file cannot be created, but if there is no log either, the
 * store cannot change. */
static const char *unchanging(const char *path, Arena *arena)
{
    if (takes_a_log(path, arena)) return NULL;
    Str uri = str_in(arena);
    str_add(&uri, "file:");
    for (const char *c = path; *c != 0; c++)
        str_print(&uri, strchr("%?#", *c) != NULL ? "%%%02X" : "%c", (unsigned char)*c);
    str_add(&uri, "?immutable=1");
    return str_text(&uri);
}

/* Connects to the file `path`. Messages name o->path, the store's final name, even while a new
 * store has its temporary name. */
static Db *connect(const Opening *o, const char *path, int flags)
{
    Arena *arena = arena_new();
    Db *db = arena_alloc(arena, sizeof *db);
    db->arena = arena;
    db->path = arena_dup(arena, o->path);
    arena_at_end(arena, db_release, db);
    const char *uri = flags & SQLITE_OPEN_READONLY ? unchanging(path, arena) : NULL;
    if (uri != NULL) path = uri, flags |= SQLITE_OPEN_URI;
    /* SQLite would read a path such as "file:a.db" as a URI, so "./" goes before it */
    if (uri == NULL && strncmp(path, "file:", 5) == 0) path = arena_print(arena, "./%s", path);
    flags |= SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &db->sqlite, flags, NULL) != SQLITE_OK) {
        refuse(o, "store-open",
               db->sqlite != NULL ? sqlite3_errmsg(db->sqlite)
                                  : "there is no memory left for SQLite");
        db_close(db);
        return NULL;
    }
    sqlite3_busy_timeout(db->sqlite, BUSY_MS);
    db_add_functions(db->sqlite);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    /* until the header and version are accepted, closing must not copy a log into the file */
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (db_exec(db,
                "PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; "
                "PRAGMA cell_size_check=ON; PRAGMA synchronous=NORMAL",
                o->d))
        return db;
    db_close(db);
    return NULL;
}

static int64_t user_version(Db *db, Diag *d)
{
    DbStatement *st = db_prepare(db, d, "PRAGMA user_version", "");
    if (!db_step(st, d)) return -1;
    int64_t version = db_int(st, 0);
    db_reset(st);
    return version;
}

/* Runs the next migration, from the file's user_version to the version above it, in one
 * transaction. Another process may have run it in the meantime; the version is therefore read again
 * inside the transaction. */
static bool migrate_once(Db *db, const Opening *o)
{
    char set_version[64];
    if (!db_begin(db, o->d)) return false;
    int64_t version = user_version(db, o->d);
    if (version < 0 || is_newer(o, version)) return false;
    if (version == (int64_t)o->n) return db_commit(db, o->d);
    snprintf(set_version, sizeof set_version, "PRAGMA user_version=%" PRId64, version + 1);
    return db_exec(db, o->migrations[version], o->d) && db_exec(db, set_version, o->d) &&
           db_commit(db, o->d);
}

static bool migrate(Db *db, const Opening *o)
{
    for (;;) {
        int64_t version = user_version(db, o->d);
        if (version < 0 || is_newer(o, version)) return false;
        if (version == (int64_t)o->n) return true;
        if (o->read_only) {
            refuse(o, "store-older",
                   "the store has an older version, and this command only reads it");
            diag_hint(
                o->d,
                "run a command that writes to it, such as `tandem sim`; it updates the store");
            return false;
        }
        if (!migrate_once(db, o)) {
            db_rollback(db);
            return false;
        }
    }
}

/* Returns the first problem in the output of quick_check. Its first line, "*** in database main
 * ***", only names the database. */
static const char *first_finding(DbStatement *st)
{
    const char *text = db_text(st, 0), *line = strchr(text, '\n');
    return strncmp(text, "***", 3) == 0 && line != NULL ? line + 1 : text;
}

static bool is_sound(Db *db, const Opening *o, off_t size)
{
    if (size > QUICK_CHECK_MAX_BYTES) return true;
    uint32_t n_before = o->d->n_errors;
    DbStatement *st = db_prepare(db, o->d, "PRAGMA quick_check(1)", "");
    bool is_ok = db_step(st, o->d) && strcmp(db_text(st, 0), "ok") == 0;
    if (!is_ok && o->d->n_errors == n_before) refuse(o, "store-damaged", first_finding(st));
    db_reset(st);
    return is_ok;
}

/* Sets the journal mode: a write-ahead log if processes can share memory, otherwise a rollback
 * journal (DELETE). The mode is stored in the file, so usually it is already set. While another
 * connection is open, the mode cannot change; then the present one is used. */
static bool choose_journal(Db *db, const char *path, const Opening *o)
{
    const bool wal = has_shared_memory(path);
    DbStatement *st = db_prepare(db, o->d, "PRAGMA journal_mode", "");
    if (!db_step(st, o->d)) return false;
    const bool is_wal = strcmp(db_text(st, 0), "wal") == 0;
    db_reset(st);
    if (!wal) {
        log_info("%s: on this file system only one process can write to the store at a time", path);
        if (!db_exec(db, "PRAGMA synchronous=FULL", o->d)) return false;
    }
    if (wal == is_wal) return true;
    const char *set = wal ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE";
    int code = sqlite3_exec(db->sqlite, set, NULL, NULL, NULL);
    if (code == SQLITE_OK || (wal && (code & 0xFF) == SQLITE_BUSY)) return true;
    db_fail(db, o->d, "set the journal mode");
    return false;
}

static void allow_checkpoint_on_close(Db *db)
{
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
}

/* Creates the tables of a new file as they are after all migrations, and sets its application_id
 * and user_version, in one transaction. */
static bool make_tables(Db *db, const Opening *o)
{
    char set_version[64], set_id[64];
    snprintf(set_id, sizeof set_id, "PRAGMA application_id=%d", DB_APPLICATION_ID);
    if (o->fresh == NULL) return db_exec(db, set_id, o->d) && migrate(db, o);
    snprintf(set_version, sizeof set_version, "PRAGMA user_version=%" PRIu32, o->n);
    bool is_made = db_begin(db, o->d) && db_exec(db, set_id, o->d);
    for (uint32_t i = 0; is_made && o->fresh[i] != NULL; i++)
        is_made = db_exec(db, o->fresh[i], o->d);
    return is_made && db_exec(db, set_version, o->d) && db_commit(db, o->d);
}

static bool set_up_new(Db *db, const char *path, const Opening *o)
{
    allow_checkpoint_on_close(db);
    return make_tables(db, o) && (path == NULL || choose_journal(db, path, o));
}

static bool sync_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_done = fsync(fd) == 0;
    close(fd);
    return is_done;
}

/* Refuses to create a store if an old log with its name exists, whose store is missing. The log
 * contains the last pages of that store: a new store must neither apply nor delete it. A process
 * that creates the store at this moment is not mistaken for this case: it gives the store its name
 * before the log appears. */
static bool refuses_stray_log(const Opening *o)
{
    static const char *const ending[] = {"-wal", "-journal"};
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        const char *log = arena_print(o->d->arena, "%s%s", o->path, ending[i]);
        if (!is_there(log) || is_there(o->path)) continue;
        refuse(o, "store-damaged",
               arena_print(o->d->arena, "the store is missing, but its log %s exists", log));
        diag_hint(o->d, "put the store beside its log, or remove the log to begin a new store");
        return true;
    }
    return false;
}

/* Builds the store under a temporary name, then links it to its own name. Before that, no other
 * process uses the file, and after a crash nobody does. So SQLite keeps its journal in memory and
 * does not wait for the disk; only the finished file is synchronised, once. The folder is not
 * synchronised here: SQLite does that when it creates the log for the first row. */
static bool create(const Opening *o)
{
    Arena *arena = arena_new();
    const char *draft = arena_print(arena, "%s.new-%ld", o->path, (long)getpid());
    unlink(draft); /* a killed process with the same id may have left this file */
    unlink(arena_print(arena, "%s-journal", draft));
    Db *db = connect(o, draft, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    bool is_built = db != NULL &&
                    db_exec(db, "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF", o->d) &&
                    set_up_new(db, draft, o);
    db_close(db);
    if (is_built && !sync_file(draft)) is_built = refuse(o, "store-open", strerror(errno));
    bool is_named = is_built && link(draft, o->path) == 0;
    /* EEXIST: another process has just created the store, which is as good */
    if (is_built && !is_named && errno == EEXIST) is_named = true;
    /* for a file system without hard links */
    if (is_built && !is_named && rename(draft, o->path) == 0) is_named = true;
    if (is_built && !is_named) refuse(o, "store-open", strerror(errno));
    unlink(draft);
    arena_free(arena);
    return is_named;
}

/* Deletes the temporary files NAME.new-PID of processes that were killed while they built a store.
 * A file stays if a process with this PID runs, even if it is another program. */
static void remove_stray_drafts(const Opening *o)
{
    Arena *arena = arena_new();
    const char *folder = folder_of(o->path, arena), *slash = strrchr(o->path, '/');
    const char *begin = arena_print(arena, "%s.new-", slash == NULL ? o->path : slash + 1);
    DIR *all = opendir(folder);
    for (const struct dirent *one; all != NULL && (one = readdir(all)) != NULL;) {
        if (strncmp(one->d_name, begin, strlen(begin)) != 0) continue;
        char *end;
        long pid = strtol(one->d_name + strlen(begin), &end, 10);
        if (pid <= 0 || (*end != 0 && strcmp(end, "-journal") != 0)) continue;
        if (kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        unlinkat(dirfd(all), one->d_name, 0);
    }
    if (all != NULL) closedir(all);
    arena_free(arena);
}

static Db *open_existing(const Opening *o)
{
    struct stat about;
    if (stat(o->path, &about) != 0) {
        const bool is_missing = errno == ENOENT;
        refuse(o, "store-open", strerror(errno));
        if (is_missing)
            diag_hint(o->d,
                      "there is no store yet; `tandem sim PLAN` or `tandem run PLAN` makes one");
        return NULL;
    }
    if (!S_ISREG(about.st_mode)) {
        refuse(o, "store-open",
               S_ISDIR(about.st_mode) ? "this is a directory" : "not a plain file");
        return NULL;
    }
    if (!header_is_ours(o)) return NULL;
    Db *db = connect(o, o->path, o->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
    if (db == NULL) return NULL;
    int64_t version = user_version(db, o->d);
    bool is_fine = version >= 0 && !is_newer(o, version) && is_sound(db, o, about.st_size);
    if (is_fine && !o->read_only) is_fine = choose_journal(db, o->path, o);
    if (is_fine && migrate(db, o)) {
        allow_checkpoint_on_close(db);
        return db;
    }
    db_close(db);
    return NULL;
}

Db *db_open(const char *path, bool read_only, const char *const *migrations, uint32_t n, Diag *d)
{
    return db_open_fresh(path, read_only, migrations, n, NULL, d);
}

Db *db_open_fresh(const char *path, bool read_only, const char *const *migrations, uint32_t n,
                  const char *const *fresh, Diag *d)
{
    assert(path != NULL && (n == 0 || migrations != NULL));
    const Opening o = {path, read_only, migrations, n, fresh, d};
    if (strcmp(path, ":memory:") == 0) {
        Db *db = connect(&o, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
        if (db == NULL || set_up_new(db, NULL, &o)) return db;
        db_close(db);
        return NULL;
    }
    if (!read_only && !may_be_written(&o)) return NULL;
    if (!read_only) remove_stray_drafts(&o);
    if (!read_only && !is_there(path) && errno == ENOENT && (refuses_stray_log(&o) || !create(&o)))
        return NULL;
    return open_existing(&o);
}

enum { FOREIGN_LOOK_OPS = 100000, FOREIGN_OPS = 100000000, FOREIGN_OPS_A_BYTE = 200 };
static const sqlite3_int64 foreign_heap_bytes = 512 << 20;

static int count_ops(void *self)
{
    Db *db = self;
    db->ops_left -= FOREIGN_LOOK_OPS;
    return db->ops_left <= 0;
}

/* The file may come from an attacker, so its views and triggers are disabled, and reading is
 * limited in work (virtual machine instructions) and memory. The limits are far above what an
 * honest file of this length needs. */
Db *db_open_foreign(const char *path, Diag *d)
{
    const Opening o = {path, true, NULL, 0, NULL, d};
    struct stat about;
    Db *db = connect(&o, path, SQLITE_OPEN_READONLY);
    if (db == NULL) return NULL;
    db->ops_left = FOREIGN_OPS;
    if (stat(path, &about) == 0) db->ops_left += FOREIGN_OPS_A_BYTE * (int64_t)about.st_size;
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_progress_handler(db->sqlite, FOREIGN_LOOK_OPS, count_ops, db);
    /* SQLite's heap limit holds for the whole process; db_release removes it */
    sqlite3_hard_heap_limit64(foreign_heap_bytes);
    db->limits_heap = true;
    return db;
}
