/* The trace of a model, as the core functions of all files see it. */
#include "planner/front/child/tracer.h"

#include <string.h>

Loc tracer_loc(const Child *c, ScriptLoc loc)
{
    return (Loc){loc.source != 0 ? c->source[loc.source].name : NULL, loc.line};
}

Tracer *tracer(Child *c)
{
    if (c->tracer == NULL)
        child_raise(c->L, "trace-order", child_loc(c, true),
                    "call the module in a forward function",
                    "a module is called outside a forward function");
    return c->tracer;
}

#define put_double  put_f64
#define put_int64_t put_i64

void tracer_put_op(Child *c, OpKind op, TensorId out, ModuleId module, ScriptLoc loc,
                   const TensorId *in, uint32_t n_in, const Attrs *attrs)
{
    static const Attrs none;
    child_send_files(c);
    record_begin(&c->out, RECORD_op);
    put_u32(&c->out, (uint32_t)op);
    put_u32(&c->out, out);
    put_u32(&c->out, module);
    child_put_loc(c, loc);
    put_u32(&c->out, n_in);
    for (uint32_t i = 0; i < n_in; i++) put_u32(&c->out, in[i]);
    bool any = memcmp(attrs, &none, sizeof none) != 0;
    put_u32(&c->out, any);
    if (any) {
#define X(type, name) put_##type(&c->out, attrs->name);
        ATTRIBUTES(X)
#undef X
        const uint32_t pairs = attr_rope_pairs(attrs);
        put_u32(&c->out, pairs);
        for (uint32_t i = 0; i < pairs; i++) put_f64(&c->out, attrs->rope_pair[i]);
    }
    record_end(&c->out);
}
