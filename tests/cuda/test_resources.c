/* What a kernel needs of a multiprocessor, by the messages of ptxas in the build (OBJECT.log, kept
 * by cmake/ptxas_log.sh). At least as many blocks must fit as the kernel's definition promises.
 * Static shared memory must stay within every block's limit. Only kernels in the table below may
 * spill registers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/arena.h"
#include "planner/base/str.h"
#include "tests/cuda/emulator/device_on_cpu.h"

enum { N_ARCHS = 3, REGISTERS = 65536, STATIC_SHARED_BYTES = 48 * 1024 };

static const char *const archs[N_ARCHS] = {"sm_80", "sm_90a", "sm_100"};

/* Bytes of registers that a thread spills, by architecture. Other kernels must spill none.
 * Gradients for heads of 256 need more than 255 registers. Smaller heads spill a few words once,
 * outside their product loops. The numbers hold for one version of nvcc. */
#define TABLE_NVCC "13.0.88"
typedef struct Spill {
    const char *kernel;
    uint32_t bytes[N_ARCHS];
} Spill;

static const Spill spills[] = {
    {"attention_dq_f16_256", {104, 32, 0}}, {"attention_dq_bf16_256", {104, 32, 0}},
    {"attention_dk_f16_256", {104, 24, 0}}, {"attention_dk_bf16_256", {104, 24, 0}},
    {"attention_dv_f16_256", {88, 68, 0}},  {"attention_dv_bf16_256", {88, 68, 0}},
    {"attention_dkv_f16_128", {16, 0, 0}},  {"attention_dkv_bf16_128", {16, 0, 0}},
    {"attention_dkv_f16_64", {0, 16, 0}},   {"attention_dkv_bf16_64", {0, 16, 0}},
};
enum { N_SPILLS = sizeof spills / sizeof spills[0], MAX_KERNELS = 256 };

/* Kernels that need more blocks on a multiprocessor of Hopper than their definition promises for
 * all architectures. */
static const struct {
    const char *kernel;
    uint32_t blocks;
} on_hopper[] = {{"column_sums", 4}};
enum { N_ON_HOPPER = sizeof on_hopper / sizeof on_hopper[0] };

/* Finds a kernel's name in a mangled one: _Z, maybe L, the length of the name, the name. */
static bool is_called(const char *mangled, const char *name)
{
    if (strncmp(mangled, "_Z", 2) != 0) return false;
    char *end;
    size_t n = strtoul(mangled + 2 + (mangled[2] == 'L'), &end, 10);
    return n == strlen(name) && strncmp(end, name, n) == 0;
}

typedef struct Seen {
    bool of[MAX_KERNELS][N_ARCHS];
} Seen;

typedef struct Used {
    char mangled[256], arch[16];
    uint32_t stored, loaded, registers, shared_bytes;
} Used;

static uint32_t allowed(const DeviceKernel *kernel, int arch)
{
    for (int i = 0; i < N_SPILLS; i++)
        if (strcmp(spills[i].kernel, kernel->name) == 0) return spills[i].bytes[arch];
    return 0;
}

/* Returns how many blocks must fit on a multiprocessor. */
static uint32_t promised(const DeviceKernel *kernel, int arch)
{
    for (int i = 0; i < N_ON_HOPPER; i++)
        if (strcmp(archs[arch], "sm_90a") == 0 && strcmp(on_hopper[i].kernel, kernel->name) == 0)
            return on_hopper[i].blocks;
    return kernel->blocks_per_sm > 0 ? kernel->blocks_per_sm : 1;
}

/* Returns the registers of a block. A warp gets registers in units of 8 for each thread. */
static uint32_t block_registers(const DeviceKernel *kernel, uint32_t each)
{
    return (each + 7) / 8 * 8 * ((kernel->threads + 31) / 32 * 32);
}

/* Appends to `wrong` one line for each rule that the kernel breaks. */
static void look_at(const Used *used, Seen *seen, Str *wrong)
{
    int arch = 0, at = 0;
    while (arch < N_ARCHS && strcmp(archs[arch], used->arch) != 0) arch++;
    const DeviceKernel *kernel = device_kernels();
    for (; kernel != NULL && !is_called(used->mangled, kernel->name); kernel = kernel->next) at++;
    if (kernel == NULL || arch == N_ARCHS) {
        str_print(wrong, "%s for %s: unknown kernel or architecture\n", used->mangled, used->arch);
        return;
    }
    assert_true(at < MAX_KERNELS);
    seen->of[at][arch] = true;
    uint32_t blocks = promised(kernel, arch);
    if (block_registers(kernel, used->registers) * blocks > REGISTERS)
        str_print(wrong, "%s for %s: %u blocks of %u threads with %u registers do not fit\n",
                  kernel->name, used->arch, blocks, kernel->threads, used->registers);
    if (used->shared_bytes > STATIC_SHARED_BYTES)
        str_print(wrong, "%s for %s: %u bytes of static shared memory\n", kernel->name, used->arch,
                  used->shared_bytes);
    uint32_t spilled = used->stored > used->loaded ? used->stored : used->loaded;
    uint32_t most = allowed(kernel, arch);
    if (spilled > most)
        str_print(wrong, "%s for %s: spills %u bytes, %u are allowed\n", kernel->name, used->arch,
                  spilled, most);
    else if (spilled < most && strcmp(TANDEM_NVCC, TABLE_NVCC) == 0)
        str_print(wrong, "%s for %s: spills %u bytes, the table still has %u\n", kernel->name,
                  used->arch, spilled, most);
}

static void look_at_log(const char *log, Seen *seen, Str *wrong)
{
    Used used = {"", "", 0, 0, 0, 0};
    for (const char *line = log; *line != '\0';
         line += strcspn(line, "\n"), line += *line != '\0') {
        const char *word;
        char text[1024];
        size_t n = strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : 0, line);
        if ((word = strstr(text, "Compiling entry function ")) != NULL) {
            memset(&used, 0, sizeof used);
            assert_int_equal(sscanf(word, "Compiling entry function '%255[^']' for '%15[^']'",
                                    used.mangled, used.arch),
                             2);
        } else if (strstr(text, "bytes stack frame, ") != NULL) {
            assert_int_equal(sscanf(text, " %*u bytes stack frame, %u bytes spill stores, %u bytes",
                                    &used.stored, &used.loaded),
                             2);
        } else if ((word = strstr(text, "Used ")) != NULL) {
            assert_int_equal(sscanf(word, "Used %u registers", &used.registers), 1);
            for (word = strchr(word, ','); word != NULL; word = strchr(word + 1, ',')) {
                uint32_t bytes;
                char unit[5] = "";
                if (sscanf(word, ", %u bytes %4s", &bytes, unit) == 2 && strcmp(unit, "smem") == 0)
                    used.shared_bytes = bytes;
            }
            look_at(&used, seen, wrong);
        }
    }
}

/* Every kernel must have messages for every architecture, and every row of the table must have a
 * kernel. */
static void look_for_missing(const Seen *seen, Str *wrong)
{
    int at = 0;
    bool has_kernel[N_SPILLS] = {false};
    for (const DeviceKernel *k = device_kernels(); k != NULL; k = k->next, at++) {
        for (int arch = 0; arch < N_ARCHS; arch++)
            if (!seen->of[at][arch])
                str_print(wrong, "%s for %s: not compiled\n", k->name, archs[arch]);
        for (int i = 0; i < N_SPILLS; i++)
            if (strcmp(spills[i].kernel, k->name) == 0) has_kernel[i] = true;
    }
    for (int i = 0; i < N_SPILLS; i++)
        if (!has_kernel[i]) str_print(wrong, "%s: no such kernel\n", spills[i].kernel);
}

static char *read_text(const char *path, Arena *arena)
{
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("%s is not there: remove the object and build it again", path);
    char *text = arena_alloc(arena, 1 << 20);
    size_t length = fread(text, 1, (1 << 20) - 1, f);
    assert_true(length < (1 << 20) - 1);
    text[length] = '\0';
    fclose(f);
    return text;
}

/* Returns the faults in the build's logs. If `from` is given, it is first replaced by `to` in each
 * log. */
static const char *verdict(const char *from, const char *to, Arena *arena)
{
    Seen seen;
    memset(&seen, 0, sizeof seen);
    Str wrong = str_in(arena);
    const char *object = read_text(TANDEM_KERNEL_OBJECTS, arena);
    while (*object != '\0') {
        size_t n = strcspn(object, "\n");
        char *log = read_text(arena_print(arena, "%.*s.log", (int)n, object), arena);
        char *at = from ? strstr(log, from) : NULL;
        if (at != NULL)
            log = arena_print(arena, "%.*s%s%s", (int)(at - log), log, to, at + strlen(from));
        look_at_log(log, &seen, &wrong);
        object += n + (object[n] == '\n');
    }
    look_for_missing(&seen, &wrong);
    return str_text(&wrong);
}

static void kernels_stay_within_their_limits(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_string_equal(verdict(NULL, NULL, arena), "");
    arena_free(arena);
}

/* Plants faults in the messages of ptxas, and checks that each is found. */
static void planted_faults_are_found(void **state)
{
    (void)state;
#define EMBED(arch) "Compiling entry function '_Z10embed_rows9EmbedArgs' for '" arch "'\n"
#define NORM(arch)  "'_Z9norm_rows8NormArgs' for '" arch "'"
    static const struct {
        const char *from, *to, *seen;
    } cases[] = {
        {EMBED("sm_90a"),
         EMBED("sm_90a") "    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
                         "Used 9 registers\n" EMBED("sm_90a"),
         "embed_rows for sm_90a: spills 8 bytes, 0 are allowed\n"},
        {EMBED("sm_80"), EMBED("sm_80") "Used 200 registers\n" EMBED("sm_80"),
         "with 200 registers do not fit\n"},
        {"'_Z11column_sums10ColumnArgs' for 'sm_90a'\n",
         "'_Z11column_sums10ColumnArgs' for 'sm_90a'\nUsed 72 registers\n" EMBED("sm_90a"),
         "column_sums for sm_90a: 4 blocks of 256 threads with 72 registers do not fit\n"},
        {EMBED("sm_100"),
         EMBED("sm_100") "Used 9 registers, used 1 barriers, 49156 bytes smem\n" EMBED("sm_100"),
         "embed_rows for sm_100: 49156 bytes of static shared memory\n"},
        {NORM("sm_80"), NORM("sm_70"), "norm_rows for sm_80: not compiled\n"},
        {"'_Z9norm_rows8NormArgs' for 'sm_100'", "'_Z9norm_lows8NormArgs' for 'sm_100'",
         "_Z9norm_lows8NormArgs for sm_100: unknown kernel or architecture\n"},
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *wrong = verdict(cases[i].from, cases[i].to, arena);
        if (strstr(wrong, cases[i].seen) == NULL)
            fail_msg("case %zu: no \"%s\" in \"%s\"", i, cases[i].seen, wrong);
    }
    /* a kernel that now spills less than its row of the table */
    if (strcmp(TANDEM_NVCC, TABLE_NVCC) == 0) {
        const char *wrong = verdict("frame, 104 bytes spill stores, 104 bytes spill loads\n",
                                    "frame, 4 bytes spill stores, 4 bytes spill loads\n", arena);
        assert_non_null(strstr(wrong, "spills 4 bytes, the table still has 104\n"));
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_stay_within_their_limits),
        cmocka_unit_test(planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
