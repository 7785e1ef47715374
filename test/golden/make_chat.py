#!/usr/bin/python3
# Golden file of chat templates: what apply_chat_template of transformers makes of conversations, line by line.
#
#   python3 make_chat.py           writes chat.jsonl beside this recipe
#   python3 make_chat.py --check   compares it with that there; exit 1 if they differ
#
# A line: which template it is for `[pack] template`, its source as it stands in a tokenizer_config.json, the sample as `pack` reads
# it, the whole text, and the text that asks for an answer to the first message where that is the user's.
import json, os, sys
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))

ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}".replace('\n', '\\n')
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
          "{% endfor %}" + ASK)
SOURCES = [
    ('chatml', CHATML),
    ('chatml', "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}" + CHATML),
    ('chatml', '{%- for message in messages -%}\n    {{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" -}}\n'
               '{%- endfor -%}\n{%- if add_generation_prompt -%}\n    {{- "<|im_start|>assistant\\n" -}}\n{%- endif -%}'),
    ('llama3', "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
               "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + "
               "content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>"
               "\\n\\n' }}{% endif %}"),
]
SAMPLES = [
    {'prompt': 'What is 2+3?', 'response': '5'},
    {'prompt': ' spaces \n', 'response': '\u3000 kept or not\t\n'},
    {'messages': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello.'},
                  {'role': 'user', 'content': 'And <|im_end|> or <|eot_id|>?'}, {'role': 'assistant', 'content': 'Gr\u00fc\u00dfe\n\nto "you"'}]},
    {'messages': [{'role': 'user', 'content': ''}, {'role': 'assistant', 'content': 'An answer to nothing'}, {'role': 'user', 'content': 'x'}]},
]


def messages_of(sample):
    if 'messages' in sample:
        return sample['messages']
    return [{'role': 'user', 'content': sample['prompt']}, {'role': 'assistant', 'content': sample['response']}]


def main():
    t = PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, 'tokenizer', 'gpt2.json'), bos_token='<|begin_of_text|>')
    lines = []
    for kind, source in SOURCES:
        for sample in SAMPLES:
            messages = messages_of(sample)
            line = {'template': kind, 'source': source, 'sample': sample,
                    'text': t.apply_chat_template(messages, chat_template=source, tokenize=False)}
            if messages[0]['role'] == 'user':
                line['ask'] = t.apply_chat_template(messages[:1], chat_template=source, tokenize=False, add_generation_prompt=True)
            lines.append(json.dumps(line))
    path, text = os.path.join(HERE, 'chat.jsonl'), '\n'.join(lines) + '\n'
    if '--check' in sys.argv:
        same = open(path, encoding='utf-8').read() == text
        print('chat.jsonl', 'same' if same else 'DIFFERS from the committed file')
        return int(not same)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
