/* Checks that the attributes of an update fit its op and the graph. */
#include <math.h>
#include <string.h>

#include "planner/verify/private.h"

/* Returns the fault in the rounding of an update; NULL: there is none. Each unit needs its own
 * random numbers, so that rounding errors are independent. */
const char *verify_rounding_fault(const Instr *in, const Attrs *a, DType param)
{
    if (a->stochastic == 0)
        return a->site == 0 ? NULL
                            : "has a `site` for random numbers, but does not round stochastically";
    if (a->stochastic != 1 || in->op != OP_adamw) return "has the attributes of another op";
    if (param != DT_bf16) return "rounds stochastically, but its parameters do not have dtype bf16";
    return a->site == (int64_t)in->unit ? NULL : "rounds with the random numbers of another unit";
}

/* Returns the fault that the attributes of an update have in themselves, without a comparison with
 * the graph; NULL if there is none. */
const char *verify_rule_fault(const Instr *in, const Attrs *a)
{
    Attrs rest = *a;
    rest.beta1 = rest.beta2 = rest.eps = rest.weight_decay = 0;
    rest.stochastic = rest.site = 0;
    const Attrs none = {0};
    if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1))
        return "has beta1 or beta2 outside of [0, 1)";
    if (!(a->eps >= 0 && a->eps < INFINITY)) return "has an eps that is negative or not finite";
    if (!(a->weight_decay >= 0 && a->weight_decay < INFINITY))
        return "has a weight decay that is negative or not finite";
    if (in->op == OP_sgd && (a->beta1 != 0 || a->beta2 != 0 || a->eps != 0))
        return "has attributes of another optimizer";
    return memcmp(&rest, &none, sizeof rest) == 0 ? NULL : "has the attributes of another op";
}

/* Checks an update of parameter t. If t is a bias that balances experts, the update must change it
 * by the rate in the graph, towards equal numbers of choices. No other parameter may have such an
 * update. */
bool verify_balance(Verifier *v, Pc pc, TensorId t)
{
    const bool balances = graph_balances(v->g, &v->g->tensors.at[t]);
    const Attrs *attrs = verify_attrs(v, pc);
    if (balances != (v->p->code.at[pc].op == OP_sign_step)) {
        verify_report(v, "verify-scale", pc, "updates %s, which %s", v->g->tensors.at[t].name,
                      balances ? "balances experts, so the optimizer must not update it"
                               : "does not balance experts, so only the optimizer may update it");
        return false;
    }
    if (!balances) return true;
    const Node *counter = &v->g->nodes.at[v->g->tensors.at[v->g->tensors.at[t].grad].producer];
    const Tensor *ids = &v->g->tensors.at[counter->in[0]];
    double mean = (double)v->n_mb / (double)v->g->tensors.at[t].dim[0];
    for (int d = 0; d < ids->n_dims; d++) mean *= (double)ids->dim[d];
    const double rate = graph_attrs_at(v->g, counter->attrs)->scale;
    if (fabs(attrs->mean - mean) <= 1e-12 * mean && attrs->scale == rate) return true;
    verify_report(v, "verify-scale", pc,
                  "moves %s by %.17g, with a mean of %.17g, but the model states %.17g and %.17g",
                  v->g->tensors.at[t].name, attrs->scale, attrs->mean, rate, mean);
    return false;
}
