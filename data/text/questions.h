// data/text/questions.h: multiple choice by likelihood: a JSONL file of questions, each with a context, choices that
// may follow it, and the right one. Each choice is a row (data/text/rows.h); the likeliest one is the answer.
//
//   {"ctx": "...", "endings": ["...", ...], "label": 3}           HellaSwag as published; the label may be a string
//   {"query": "...", "choices": ["...", ...], "gold": 3}          any other
//
// The protocol decides which tokens are asked, and what a likelihood is divided by for acc_norm:
//
//   lm-eval   lm-evaluation-harness: "query choice" is encoded as a whole; white space at the query's end counts as the
//             choice's; divided by the choice's characters. Where `activity_label`, `ctx_a` and `ctx_b` are there, the
//             query is made of them, and brackets are taken out of query and choices, as its task hellaswag does.
//   llmc      llm.c: query and " choice" are encoded apart; divided by the choice's tokens.
#ifndef DATA_TEXT_QUESTIONS_H
#define DATA_TEXT_QUESTIONS_H

#include "data/protocol.h"
#include "data/text/rows.h"

typedef struct questions questions;

// Compressed files are read too (data/text/document.h). ERR_DATA names file and line. A query that is too long for the
// context loses its beginning; a choice that is too long is ERR_DATA.
err_t questions_open(questions **out, const rows_from *o, question_protocol protocol);
void questions_close(questions *q);

typedef struct questions_info {
    int64_t questions, rows;
    int64_t cut;  // rows that lost their beginning
} questions_info;
questions_info questions_about(const questions *q);

// Sample k is row k. The questions' own: don't close it.
source *questions_source(questions *q);

// What is answered rightly by the choice whose losses have the least sum, and by the one whose sum divided as the
// protocol says is least. Of equals the first is the answer; a NaN is none.
typedef struct answers {
    int64_t questions, right, right_norm;
} answers;

// sums: of the losses of each row.
answers questions_mark(const questions *q, const double *sums);

#endif
