/* Checks tile{}: a region of the model, such as head and loss, that is computed for a few tokens at
 * a time. The pieces together must give the result of the whole region. The check shares no code
 * with the pass. It derives two facts about each value from the graph alone: the tokens that it
 * covers, and the computation that made it from values of the whole model. Some results leave the
 * region: the loss, its count of tokens, and the gradients of weights and of the region's input.
 * Each of them must cover every token exactly once, and treat all tokens in the same way. Other
 * proofs show that programs compute the graph's values. */
#include <stdlib.h>
#include <string.h>

#include "planner/verify/value/value.h"

#define RULE "verify-tiles"

/* Tokens [lo, hi) of each sequence; hi 0: all tokens. */
typedef struct Part {
    int64_t lo, hi;
    uint32_t tile; /* 1 + the index of the piece that the node names; 0: none */
} Part;

/* The contribution of some tokens to a tensor that covers all tokens. `made` is a hash of the
 * computation. */
typedef struct TileShare {
    TensorId to;
    Hash128 made;
    Part part;
    NodeId node;
} TileShare;

typedef struct Tiles {
    Verifier *v;
    const Graph *g;
    Part *of;      /* [tensor] */
    Hash128 *made; /* [tensor]: a hash of the computation that made it */
    LIST(TileShare) shares;
    int64_t tokens;  /* tokens of a sequence */
    DimRoles *roles; /* [tensor] */
} Tiles;

static bool has_tokens(const Tiles *t, TensorId id)
{
    const Tensor *at = &t->g->tensors.at[id];
    bool of_param = at->grad_of && t->g->tensors.at[at->grad_of].role == ROLE_param;
    return at->role != ROLE_param && at->role != ROLE_state && !of_param &&
           roles_dim(&t->roles[id], INDEX_tokens) >= 0;
}

static bool report(const Tiles *t, NodeId id, const char *what, Part a, Part b)
{
    verify_report(t->v, RULE, 0,
                  "graph node %u (%s) %s: tokens %lld to %lld (piece %u), %lld to %lld (piece %u)",
                  id, op_info(t->g->nodes.at[id].op)->name, what, (long long)a.lo, (long long)a.hi,
                  a.tile, (long long)b.lo, (long long)b.hi, b.tile);
    return false;
}

static bool same_tokens(Part a, Part b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Finds the tokens on which a node works; returns false after a report. */
static bool find_part(const Tiles *t, NodeId id, Part *part)
{
    const Node *n = &t->g->nodes.at[id];
    const Attrs *a = graph_attrs_at(t->g, n->attrs);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (t->of[n->in[i]].hi) *part = t->of[n->in[i]];
    for (uint32_t i = 0; part->hi && i < n->n_in; i++) {
        const Part is = t->of[n->in[i]];
        if (!has_tokens(t, n->in[i]) || op_reads_whole_labels(n->op, i) || same_tokens(is, *part))
            continue;
        return report(t, id, "reads tensors with different tokens", *part, is);
    }
    /* A mean reads all labels to count its groups; attribute `first` is the first label of the
     * part. */
    const bool whole = n->n_in && op_reads_whole_labels(n->op, n->n_in - 1u) && part->hi;
    const Part taken = {a->first, a->first + a->count, n->tile};
    if (whole && (t->of[n->in[n->n_in - 1]].hi || a->first != part->lo))
        return report(t, id, "counts the labels of tokens that are not its own", *part, taken);
    if (op_returns_piece(n->op) && !same_tokens(taken, *part))
        return report(t, id, "writes gradients of tokens that are not its own", *part, taken);
    if (op_takes_piece(n->op)) {
        if (part->hi)
            return report(t, id, "takes a piece of a tensor that is itself a piece", *part, taken);
        *part = taken;
    }
    if (part->hi && part->tile != n->tile)
        return report(t, id, "names a piece other than the one that it computes", *part,
                      (Part){part->lo, part->hi, n->tile});
    if (!part->hi && n->tile)
        return report(t, id, "names a piece, but computes with all tokens", *part,
                      (Part){0, 0, n->tile});
    return true;
}

/* Returns a hash of the computation of output j, without the tokens that it covers. */
static Hash128 way_of(const Tiles *t, const Node *n, uint32_t j)
{
    Hash128 in[MAX_IN];
    Attrs attrs = *graph_attrs_at(t->g, n->attrs);
    attrs.first = attrs.count = 0;
    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = t->of[n->in[i]].hi ? t->made[n->in[i]] : value_leaf("whole", n->in[i]);
    return value_of_op(n->op, hash_bytes(&attrs, sizeof attrs).lo, in, n->n_in, j, 0, NULL);
}

static bool is_of_part(const Tiles *t, const Node *n, TensorId out)
{
    const TensorId of = t->g->tensors.at[out].grad_of;
    if (of) return t->of[of].hi != 0;
    return op_takes_piece(n->op) || has_tokens(t, out);
}

static void add_outputs(Tiles *t, NodeId id, Part part)
{
    const Node *n = &t->g->nodes.at[id];
    for (uint32_t j = 0; j < n->n_out; j++) {
        const TensorId out = n->out[j];
        const Hash128 made = way_of(t, n, j);
        if (!is_of_part(t, n, out)) {
            const TileShare share = {out, made, part, id};
            list_push(t->v->arena, &t->shares, share);
            continue;
        }
        const bool again = t->of[out].hi != 0;
        if (again && !same_tokens(t->of[out], part))
            report(t, id, "adds to a value of other tokens", part, t->of[out]);
        t->made[out] = again ? value_add(t->made[out], made) : made;
        t->of[out] = part;
    }
}

static int by_way(const void *a, const void *b)
{
    const TileShare *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->made.hi != y->made.hi) return x->made.hi < y->made.hi ? -1 : 1;
    if (x->made.lo != y->made.lo) return x->made.lo < y->made.lo ? -1 : 1;
    if (x->part.lo != y->part.lo) return x->part.lo < y->part.lo ? -1 : 1;
    return x->node < y->node ? -1 : 1;
}

/* Checks that the contributions to one tensor by the same computation cover the tokens [0,
 * t->tokens) once, one piece after the other. Returns the index after these contributions. */
static uint32_t check_shares(const Tiles *t, uint32_t first)
{
    const TileShare *at = &t->shares.at[first];
    int64_t end = 0;
    uint32_t n = 0;
    bool fine = true;
    for (; first + n < t->shares.n; n++) {
        const TileShare *s = at + n;
        if (s->to != at->to || !value_same(s->made, at->made)) break;
        fine = fine && s->part.lo == end && s->part.tile == n + 1;
        end = s->part.hi;
    }
    if (!fine || end != t->tokens)
        verify_report(t->v, RULE, 0,
                      "%s must be summed over each of %lld tokens once, but its %u pieces (such as "
                      "graph node %u, %s) do not cover all tokens in the same way",
                      t->g->tensors.at[at->to].name, (long long)t->tokens, n, at->node,
                      op_info(t->g->nodes.at[at->node].op)->name);
    return first + n;
}

void verify_tiles(Verifier *v)
{
    const Graph *g = v->g;
    Tiles t = {.v = v, .g = g};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        if (!op_takes_piece(g->nodes.at[id].op)) continue;
        if (!t.roles) t.roles = graph_roles(g, v->arena);
        const TensorId from = g->nodes.at[id].in[0];
        const int dim = roles_dim(&t.roles[from], INDEX_tokens);
        if (dim < 0) {
            report(&t, id, "takes tokens of a tensor without tokens", (Part){0, 0, 0},
                   (Part){0, 0, 0});
            continue;
        }
        const int64_t all = g->tensors.at[from].dim[dim];
        if (t.tokens && all != t.tokens)
            report(&t, id, "divides sequences of a wrong length", (Part){0, t.tokens, 0},
                   (Part){0, all, 0});
        t.tokens = all;
    }
    t.of = arena_array(v->arena, g->tensors.n, sizeof *t.of);
    t.made = t.tokens ? arena_array(v->arena, g->tensors.n, sizeof *t.made) : NULL;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Part part = {0, 0, 0};
        if (!t.tokens && !g->nodes.at[id].tile) continue;
        if (!t.roles) t.roles = graph_roles(g, v->arena);
        if (!find_part(&t, id, &part)) return;
        if (part.hi) add_outputs(&t, id, part);
    }
    if (t.shares.n) qsort(t.shares.at, t.shares.n, sizeof *t.shares.at, by_way);
    for (uint32_t i = 0; i < t.shares.n;) i = check_shares(&t, i);
}
