// data/text/chat_find.h: which template the files beside a tokenizer ask for.
#ifndef DATA_TEXT_CHAT_FIND_H
#define DATA_TEXT_CHAT_FIND_H

#include "base/err.h"
#include "data/chat.h"

// `path` is a tokenizer as tokenizer_open takes it. Beside it, chat_template.jinja has the template, or else
// tokenizer_config.json, as `chat_template`: a string, or a list that has one by the name of `default`. ERR_CONFIG:
// there is none, or one that does more than a form that is known here: the message names the templates to choose from.
err_t chat_find(chat_template *out, const char *path);

// The template that a Jinja source is; CHAT_NO: none that is known.
chat_template chat_recognise(const char *source);

#endif
