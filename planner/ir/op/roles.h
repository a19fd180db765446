/* The roles of indices, as the head of ops.def lists them. Code that needs an index asks for its
 * role; the op's row in ops.def says which letter has this role. */
#ifndef TANDEM_IR_ROLES_H
#define TANDEM_IR_ROLES_H

typedef enum IndexRole {
    INDEX_none,
#define ROLE(name, letters) INDEX_##name,
#include "planner/ir/op/ops.def"
    INDEX_ROLES
} IndexRole;

#endif
