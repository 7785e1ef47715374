// trainer/config/judge.h: shared by the files of trainer/config that know rules between keys. A rule that does not hold
// leaves in the judge which keys are in it and what is wrong; what would be right is found by trying
// (trainer/config/propose.c), so that no rule proposes what another one refuses.
#ifndef TRAINER_CONFIG_JUDGE_H
#define TRAINER_CONFIG_JUDGE_H

#include "trainer/config/table.h"

#define S(n) ((n) == 1 ? "" : "s")  // "1 rank", "2 ranks"
#define ROW(section, key) config_row(offsetof(config, section.key))

enum { JUDGE_KEYS = 8, JUDGE_NUMBERS = 8, JUDGE_TEXT = 640 };

typedef struct judge {
    const config *c;
    int world;    // ranks that were counted elsewhere; 0: as many as the INI says, if it does
    bool silent;  // asked only whether the rules hold
    int blocks;   // of the model
    bool demand;  // it has tables whose rows are made on demand
    bool tied;    // its first block and its last one share a tensor
    bool shared;  // so do blocks in between
    int passed;   // rules that hold, of those asked so far
    // Of the rule that is broken.
    int key[JUDGE_KEYS], keys;  // rows; it is reported at the line of the one that was set last
    double number[JUDGE_NUMBERS];
    int numbers;  // numbers, of which a key may have to be one, a divisor or a multiple
    char text[JUDGE_TEXT];
} judge;

// What a rule says when it does not hold. Returns ERR_CONFIG. Rows of -1 are left out, and numbers that are not above
// 0.
err_t judge_refuse(judge *j, const int *rows, int count, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void judge_number(judge *j, double number);

// What does not go with a setting: a key, whether it is set so, and why it can't be.
typedef struct judge_other {
    int row;
    bool is;
    const char *why;
} judge_other;

// Refuses the first of n that is set so, beside row `with`: "SUBJECT WHY".
err_t judge_others(judge *j, const judge_other *all, size_t n, int with, const char *subject);

// Asks a rule.
#define RULE(j, call) \
    do { \
        if ((call) != ERR_OK) return ERR_CONFIG; \
        (j)->passed++; \
    } while (0)

#define COUNT(...) (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))
#define ROWS(...) (const int[]){__VA_ARGS__}, COUNT(__VA_ARGS__)

// trainer/config/rules.c: what the architecture chooses and demands; c is j->c.
err_t judge_model(judge *j, config *c);

// Of [precision] products, once more where `auto` was decided.
err_t judge_products(judge *j);

// All rules between keys; what was left open is filled in. c is j->c.
err_t judge_all(judge *j, config *c);

// trainer/config/layout.c: the rules of [parallel], first those that need no number of ranks, then those of `world`
// ranks.
err_t judge_layout(judge *j);
err_t judge_ranks(judge *j, int world);

// trainer/config/islands.c: the rules of [outer], of a layout whose other rules hold.
err_t judge_outer(judge *j);

// trainer/config/periods.c: which steps may be followed by what shows or keeps the weights.
err_t judge_periods(judge *j);

// trainer/config/servers.c: the rules of [server] that need no number of ranks.
err_t judge_servers(judge *j);

// trainer/config/demand.c: of rows on demand, after judge_model.
err_t judge_demand(judge *j);

// trainer/config/propose.c: dst = " Nearest that work: [batch] global = 8, or [batch] lanes = 1 and [batch] micro =
// 1.", up to three alternatives, each of which passes all rules in place of what j refused; or that there is none
// nearby.
enum { PROPOSALS = 512 };
void propose(const judge *j, char dst[PROPOSALS]);

// Opens again what was chosen for keys that were left open: all of them, or those of [model].
void judge_reopen(config *c, bool model_only);

#endif
