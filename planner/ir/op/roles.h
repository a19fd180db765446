/* The roles of indices: tokens, heads, features and so on (the ROLE rows of ops.def). Code that
 * wants, say, the token dimension of an op asks for the role. It never compares letters. */
#ifndef TANDEM_IR_ROLES_H
#define TANDEM_IR_ROLES_H

typedef enum IndexRole {
    INDEX_none,
#define ROLE(name, letters) INDEX_##name,
#include "planner/ir/op/ops.def"
    INDEX_ROLES
} IndexRole;

#endif
