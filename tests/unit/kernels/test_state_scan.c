/* The scan of a state-space layer equals its dual form: y(t) = D x(t) + the sum over u <= t of C(t)
 * B(u) step(u) x(u), times the decays of the tokens after u. The dual form has no state, so it
 * shares no code with the recurrence in the kernel. The case has the sizes of a real head, and
 * decays strong enough to forget old tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "planner/base/rng.h"
#include "tests/support/ops/eval.h"

enum { B = 2, S = 37, G = 2, R = 3, E = 64, Q = 128, HEADS = G * R };

static Arena *arena;

/* Returns a tensor of normal random numbers or, if `positive`, of numbers from 0.01 to about
 * 0.3. */
static Value make(uint64_t stream, bool positive, uint32_t n_dims, const int64_t *dim)
{
    Value v = value_new(arena, DT_f64, n_dims, dim);
    for (int64_t i = 0; i < value_elements(&v); i++) {
        const double x = rng_normal(7, stream, (uint64_t)i);
        value_set(&v, i, positive ? 0.01 + 0.1 * fabs(x) : x);
    }
    return v;
}

/* Returns y of token t of sample b, feature e of head h. */
static double dual(const Value *in, int64_t b, int64_t t, int64_t h, int64_t e)
{
    const double rate = exp(value_get(&in[2], h));
    double decay = 1, y = 0;
    for (int64_t u = t; u >= 0; u--) {
        const int64_t row = b * S + u, step_at = row * HEADS + h;
        const double step = value_get(&in[1], step_at);
        double score = 0;
        for (int64_t q = 0; q < Q; q++)
            score += value_get(&in[4], ((b * S + t) * G + h / R) * Q + q) *
                     value_get(&in[3], (row * G + h / R) * Q + q);
        y += decay * score * step * value_get(&in[0], step_at * E + e);
        decay *= exp(-step * rate);
    }
    return y + value_get(&in[5], h) * value_get(&in[0], ((b * S + t) * HEADS + h) * E + e);
}

static void the_recurrence_equals_its_dual_form(void **state)
{
    (void)state;
    arena = arena_new();
    const int64_t x[] = {B, S, G, R, E}, step[] = {B, S, G, R}, head[] = {G, R};
    const int64_t shared[] = {B, S, G, Q};
    Value args[7] = {make(1, false, 5, x),      make(2, true, 4, step),    make(3, false, 2, head),
                     make(4, false, 4, shared), make(5, false, 4, shared), make(6, false, 2, head)};
    args[6] = value_new(arena, DT_f64, 5, x);
    const Attrs attrs = {.chunk = 16};
    eval_op(OP_state_scan, &attrs, args, 6, 1, NULL, NULL, 0);
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < value_elements(&args[6]); i += 11) {
        const int64_t row = i / E, token = row / HEADS;
        const double y = value_get(&args[6], i);
        const double d = fabs(y - dual(args, token / S, token % S, row % HEADS, i % E));
        worst = fmax(worst, d);
        largest = fmax(largest, fabs(y));
    }
    print_message("worst difference %g of %g\n", worst, largest);
    assert_true(largest > 1 && worst <= 1e-13 * largest);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_recurrence_equals_its_dual_form)};
    return cmocka_run_group_tests_name("state scan", tests, NULL, NULL);
}
