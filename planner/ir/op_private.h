/* Shared by op.c and op_parse.c only. */
#ifndef TANDEM_IR_OP_PRIVATE_H
#define TANDEM_IR_OP_PRIVATE_H

#include "planner/ir/op.h"

const char *op_gradient_signature(const char *signature, int of, char *out, size_t room);
void op_parse_backward(const char *text, OpInfo *info, OpKind (*find)(const char *name, size_t n));

#endif
