/* Fields are read from a numpy file. A line must have the same values no matter which part of it a
 * rank reads, or ranks would train on different data. Files in another format are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "exec/data/data_field.h"
#include "tests/support/command.h"
#include "tests/support/plans/nets.h"

enum { TIMES = 5, CHANNELS = 5, HEIGHT = 12, WIDTH = 8, ALL = TIMES * CHANNELS * HEIGHT * WIDTH };

/* Each value encodes its time, channel, row and column. */
static double value_of(int64_t time, int64_t channel, int64_t row, int64_t column)
{
    return (double)(((time * CHANNELS + channel) * HEIGHT + row) * WIDTH + column);
}

typedef struct File {
    const char *magic, *header;
    int version;
    size_t bytes; /* bytes of values in the file */
    bool is_double;
} File;

static const char *write_file(Arena *arena, const File *file)
{
    const char *path = arena_print(arena, "%s/field.npy", command_new_folder(arena));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    const size_t n = strlen(file->header);
    const unsigned char prefix[4] = {(unsigned char)file->version, 0, (unsigned char)(n & 255),
                                     (unsigned char)(n >> 8)};
    fwrite(file->magic, 1, 6, f);
    fwrite(prefix, 1, 4, f);
    fwrite(file->header, 1, n, f);
    for (size_t i = 0, written = 0; written < file->bytes; i++) {
        const double wide = (double)i;
        const float narrow = (float)i;
        const size_t size = file->is_double ? sizeof wide : sizeof narrow;
        fwrite(file->is_double ? (const void *)&wide : (const void *)&narrow, 1, size, f);
        written += size;
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

static Graph graph_of(Arena *arena, int64_t channels, int64_t height)
{
    Net n = net_default();
    n.channels = channels, n.height = height;
    Config config;
    Graph graph;
    net_build(&n, arena, &config, &graph);
    return graph;
}

#define MAGIC "\x93NUMPY"
#define SHAPE(descr, order, shape)                                                                 \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': (" shape "), }          \n"

static void check_lines(Arena *arena, bool is_double)
{
    const File file = {MAGIC,
                       is_double ? SHAPE("<f8", "False", "5, 5, 12, 8")
                                 : SHAPE("<f4", "False", "5, 5, 12, 8"),
                       1, ALL * (is_double ? sizeof(double) : sizeof(float)), is_double};
    Diag d = diag_in(arena);
    const Graph graph = graph_of(arena, 4, HEIGHT);
    DataSource *data = data_grid(write_file(arena, &file), &graph, 11, arena, &d);
    assert_non_null(data);
    bool seen[TIMES] = {false};
    for (int64_t sample = 0; sample < 64; sample++) {
        double input[WIDTH], target[WIDTH], part[3];
        FieldLine line = {.step = 2,
                          .sample = sample,
                          .microbatch = 1,
                          .channel = 3,
                          .channels = 4,
                          .row = 7,
                          .rows = HEIGHT,
                          .column = 0,
                          .columns = WIDTH,
                          .n = WIDTH};
        data->line(data->self, &line, input);
        const int64_t time = (int64_t)input[0] / (CHANNELS * HEIGHT * WIDTH);
        assert_in_range(time, 0, TIMES - 2);
        seen[time] = true;
        line.is_target = true;
        data->line(data->self, &line, target);
        for (int64_t k = 0; k < WIDTH; k++) {
            assert_true(input[k] == value_of(time, 3, 7, k));
            assert_true(target[k] == value_of(time + 1, 3, 7, k));
        }
        line.column = 4, line.n = 3; /* the columns of another rank */
        data->line(data->self, &line, part);
        assert_memory_equal(part, &target[4], sizeof part);
    }
    for (int t = 0; t < TIMES - 1; t++) assert_true(seen[t]);
    assert_false(seen[TIMES - 1]); /* there is no target for the last time */
}

static void a_line_is_a_time_and_its_target_the_next(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    check_lines(arena, false);
    check_lines(arena, true);
    arena_free(arena);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    enum { BYTES = ALL * sizeof(float) };
    static const struct {
        File file;
        const char *told;
        int64_t channels, height; /* sizes of the model; 0: as in the file */
    } cases[] = {
        {{"\x93PUMPY", SHAPE("<f4", "False", "5, 5, 12, 8"), 1, BYTES, false},
         "it is not a file of numpy",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 12, 8"), 3, BYTES, false},
         "its header cannot be read",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "True", "5, 5, 12, 8"), 1, BYTES, false},
         "its array is not in C order",
         0,
         0},
        {{MAGIC, SHAPE(">f4", "False", "5, 5, 12, 8"), 1, BYTES, false}, "neither float32", 0, 0},
        {{MAGIC, SHAPE("<f4", "False", "25, 12, 8"), 1, BYTES, false},
         "not have four dimensions",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 12, 8, 1"), 1, BYTES, false},
         "not have four dimensions",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 0, 8"), 1, BYTES, false},
         "not have four dimensions",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 99999999999, 8"), 1, BYTES, false},
         "not have four dimensions",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "16777216, 16777216, 16777216, 8"), 1, BYTES, false},
         "64 GiB",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "1, 5, 12, 8"), 1, BYTES, false},
         "a sample needs two",
         0,
         0},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 12, 8"), 1, BYTES - 4, false}, "shorter than", 0, 0},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 12, 8"), 1, BYTES, false},
         "reads 4 of 16 x 8",
         0,
         16},
        {{MAGIC, SHAPE("<f4", "False", "5, 5, 12, 8"), 1, BYTES, false}, "reads 6 of 12 x 8", 6, 0},
        {{MAGIC, "no dictionary", 1, BYTES, false}, "its array is not in C order", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const Graph graph = graph_of(arena, cases[i].channels ? cases[i].channels : 4,
                                     cases[i].height ? cases[i].height : HEIGHT);
        assert_null(data_grid(write_file(arena, &cases[i].file), &graph, 11, arena, &d));
        Str said = str_in(arena);
        diag_print(&d, &said);
        if (!strstr(str_text(&said), "error[data-file]") || !strstr(str_text(&said), cases[i].told))
            fail_msg("case %zu: %s", i, str_text(&said));
        arena_free(arena);
    }
}

/* Along a circle of latitude, a wave has 1, 2 or 3 periods. Its amplitude is the circle's length,
 * relative to the equator. It moves east: the target is the input moved by 1/24 of a period. */
static void waves_go_round_and_move(void **state)
{
    (void)state;
    enum { ROWS = 9, COLUMNS = 24 * 6 };
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t channel = 0; channel < 6; channel++) {
            double input[COLUMNS], target[COLUMNS], sum = 0, squares = 0;
            const int64_t number = 1 + channel % 3, shift = COLUMNS / (24 * number);
            FieldLine line = {.sample = 3, .channel = channel, .channels = 6, .row = row};
            line.rows = ROWS, line.n = line.columns = COLUMNS;
            data_wave_line(5, &line, input);
            line.is_target = true;
            data_wave_line(5, &line, target);
            uint32_t n_turns = 0;
            for (int64_t i = 0; i < COLUMNS; i++) {
                sum += input[i], squares += input[i] * input[i];
                n_turns += input[i] < 0 && input[(i + 1) % COLUMNS] >= 0;
                assert_true(fabs(target[(i + shift) % COLUMNS] - input[i]) < 1e-9);
            }
            /* rows are 180 / ROWS degrees of latitude apart; row ROWS / 2 is the equator */
            const double width = cos((double)(row - ROWS / 2) * acos(-1) / ROWS);
            assert_int_equal(n_turns, number);
            assert_true(fabs(sum) < 1e-9);
            assert_true(fabs(squares / COLUMNS - width * width / 2) < 1e-9);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waves_go_round_and_move),
        cmocka_unit_test(a_line_is_a_time_and_its_target_the_next),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests_name("data_field", tests, NULL, NULL);
}
