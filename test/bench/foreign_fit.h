// test/bench/foreign_fit.h: the constants that make the errors of published tables smallest. One constant after the
// other is moved up or down, by steps that grow where they help and shrink where they do not.
#ifndef TEST_BENCH_FOREIGN_FIT_H
#define TEST_BENCH_FOREIGN_FIT_H

#include "test/bench/foreign_tables.h"

enum { FOLDS = 5 };

// From the sheet's values on. left_out [rows]: not looked at; NULL: none. What is made small is the mean error of each
// table, added up.
err_t fit_sheet(foreign_sheet *sheet, const tables *t, const bool *left_out);

// Can the constant change the row's prediction? Of others a fit does not predict the row again.
bool fit_matters(int constant, const table_row *r);

// predicted [rows] of those that are wanted; NULL: of all.
err_t fit_predict(double *predicted, const tables *t, const foreign_sheet *sheet, const bool *wanted);

// predicted [rows] by constants that were fitted to the rows of the other folds. Folds are drawn by a fixed seed.
err_t fit_folds(const tables *t, double *predicted);

#endif
