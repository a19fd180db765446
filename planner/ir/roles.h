/* The roles of indices, as the head of ops.def lists them. A pass, the verifier or an axis asks for
 * a role; the row says which letter plays it. */
#ifndef TANDEM_IR_ROLES_H
#define TANDEM_IR_ROLES_H

typedef enum IndexRole {
    INDEX_none,
#define ROLE(name, letters) INDEX_##name,
#include "planner/ir/ops.def"
    INDEX_ROLES
} IndexRole;

#endif
