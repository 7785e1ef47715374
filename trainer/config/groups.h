// trainer/config/groups.h: [optimizer] groups, rules for parameters by their names:
//
//   groups = wte.*: lr=0.1, h.0.* h.1.*: frozen, *.mlp.*: decay=0.01 type=adamw
//
// A group is one or more globs, a colon and what holds for the parameters that match; commas are between groups. The
// first group with a glob that matches decides, and what it does not say is as [optimizer] says. What the names are
// that it meets is known once there is a model (trainer/step/row_rules.h).
#ifndef TRAINER_CONFIG_GROUPS_H
#define TRAINER_CONFIG_GROUPS_H

#include "trainer/config/config.h"

enum { GROUPS_MOST = 16, GROUP_GLOB = 128 };

typedef struct param_group {
    char globs[GROUP_GLOB];  // space between
    double lr;               // a factor of [optimizer] lr, and so of its schedule
    double decay;            // instead of weight_decay, of what decays at all; below 0: not said
    bool frozen;
    int type;  // optimizer_kind; -1: not said
} param_group;

typedef struct param_groups {
    int count;
    param_group at[GROUPS_MOST];
} param_groups;

// ERR_CONFIG: what is wrong, without the key's name.
err_t groups_parse(param_groups *g, const char *text);

// The next glob of a group into dst; false: there is none. Start with *at = group->globs.
bool group_next_glob(const char **at, char dst[GROUP_GLOB]);

// The first group that matches; -1: none.
int groups_find(const param_groups *g, const char *name);

// Is any parameter's update that of this type, if its group says so?
bool groups_have(const char *text, optimizer_kind type);

// Globs as model/rule.h wants them: which parameters are frozen. size: of dst. False: they don't fit.
bool groups_frozen(const param_groups *g, char *dst, size_t size);

#endif
