// test/test_checkpoint_ranks.c: what some ranks saved any others load, with the same hashes however it was dealt; nodes
// lose their disks, their files and their bytes, and get them back from the others. (test_checkpoint_crash.c: failures
// and crashes while saving.)
#include "model/safetensors.h"
#include "test/support/checkpoint_ranks.h"

#include <fcntl.h>
#include <inttypes.h>

// --- any world size --------------------------------------------------------------------------------------------------

// Loads with ckpt_load, by the path of the directory.
static void body_load(rank_of *r) {
    char path[IO_PATH];
    fill_dealt(&r->d, 999, 0);
    snprintf(path, sizeof path, "%s/ckpt/step-%08" PRId64, r->dir, r->j->step);
    DOES(ckpt_load(path, &r->d.s, &r->d.at, false));
    MUST(dealt_is(&r->d, r->j->step, r->j->salt), "other bits");
    note_hashes(r);
}

static void test_any_world(void **state) {
    const nodes *n = *state;
    const int from[] = {1, 2, 3, 4, 8}, to[] = {1, 2, 3, 5};
    outcome expected;
    hashes_of(&expected, 0, 7, 3);
    for (int i = 0; i < 8; i++) {
        job save = {.where = n,
                    .nodes = 1,
                    .ranks = {from[i < 5 ? i : i - 3]},
                    .deal = i < 5 ? 100 + (uint32_t)i : 0,
                    .keep = 1};
        wipe(n);
        saves(&save, 7, 3);
        assert_string_equal(save.out->hash, expected.hash);
        assert_string_equal(save.out->state_hash, expected.state_hash);
        node_has(n, 0, 7, &expected);
        for (int k = 0; k < 4; k++) {
            job load = {.where = n, .nodes = 1, .ranks = {to[k]}, .deal = (uint32_t)(k + i) % 3, .step = 7, .salt = 3};
            const outcome *o = resumes_at(&load, 7, 3, 0);
            assert_string_equal(o->hash, expected.hash);
            assert_string_equal(o->state_hash, expected.state_hash);
            all_ranks_do(&load, (k + i) % 2 ? body_load : body_load_masters);
            if ((k + i) % 2) assert_string_equal(same_on_all(&load)->state_hash, expected.state_hash);
            end_job(&load);
        }
        end_job(&save);
    }
}

// One file a rank, none for a rank that has nothing; whole tensors under their names, others with where they begin.
static void body_save_three(rank_of *r) {
    static const int64_t first[3][TENSORS] = {{0}, {0}, {CHUNK}},
                         count[3][TENSORS] = {{0}, {CHUNK, 2 * CHUNK}, {380000 - CHUNK, 0, 4, 1, 21003}};
    ckpt_release(&r->d.s);
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < TENSORS; i++) {
            ckpt_tensor *t = &r->d.tensor[g][i];
            t->first = first[r->rank][i] * (i == 0), t->count = count[r->rank][i];
            free(t->data);
            t->data = t->count ? malloc((size_t)t->count * 4) : NULL;
        }
    DOES(ckpt_prepare(&r->d.s));
    body_save(r);
}

static void file_holds(const nodes *n, const char *file, int count, const char *const *names,
                       const int64_t (*size)[2]) {
    char path[IO_PATH];
    st_file f;
    node_path(path, n, 0, 5, file);
    OK(st_open(&f, path));
    assert_int_equal(f.count, count);
    for (int i = 0; i < count; i++) {
        const st_tensor *t = st_find(&f, names[i]);
        if (!t) fail_msg("%s: no %s", file, names[i]);
        assert_int_equal(t->size[0], size[i][0]);
        assert_int_equal(t->size[1], size[i][1]);
        uint32_t word[4], read[4];
        float *x = malloc((size_t)t->bytes);
        OK(st_read(&f, t, x));
        memcpy(read, x, t->bytes < 16 ? (size_t)t->bytes : 16);
        int tensor = 0;
        while (strncmp(names[i], table_of_tensors[tensor].name, strlen(table_of_tensors[tensor].name)) != 0) tensor++;
        words_of(word, 5, 0, 0, tensor, strstr(names[i], "@16384") ? CHUNK : 0);
        assert_memory_equal(read, word, t->bytes < 16 ? (size_t)t->bytes : 16);
        free(x);
    }
    st_close(&f);
}

static void test_files(void **state) {
    const nodes *n = *state;
    char path[IO_PATH];
    job j = {.where = n, .nodes = 1, .ranks = {3}, .step = 5, .keep = 1};
    wipe(n);
    all_ranks_do(&j, body_save_three);
    if (same_on_all(&j)->rc != ERR_OK) fail_msg("%s", j.out->text);
    file_holds(n, "model-00001-of-00003.safetensors" CKPT_END, 2, (const char *[]){"emb@0", "w"},
               (const int64_t[][2]){{CHUNK, 0}, {2, CHUNK}});
    file_holds(n, "model-00002-of-00003.safetensors" CKPT_END, 4, (const char *[]){"emb@16384", "b.bias", "s", "h"},
               (const int64_t[][2]){{380000 - CHUNK, 0}, {4, 0}, {0, 0}, {1, 3}});
    static const char *const absent[] = {"model-00000-of-00003.safetensors" CKPT_END,
                                         "optimizer-00000-of-00003.safetensors" CKPT_END, "model.safetensors" CKPT_END};
    for (int i = 0; i < 3; i++) {
        node_path(path, n, 0, 5, absent[i]);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    end_job(&j);
}

// Parts that don't make up the tensors: every rank gets the error.
static void body_bad_parts(rank_of *r) {
    static const int64_t shift[] = {CHUNK, -CHUNK, 5};
    for (int i = 0; i < 3; i++) {
        ckpt_release(&r->d.s);
        ckpt_tensor *t = &r->d.tensor[1][0], keep = *t;
        if (r->rank == 1) t->first += shift[i], t->count -= shift[i];
        err_t rc = ckpt_prepare(&r->d.s);
        MUST(rc == ERR_INTERNAL && strstr(err_last()->text, "tensor m/emb: rank 1"), "%d %s", rc,
             rc ? err_last()->text : "");
        *t = keep;
        MUST(ckpt_save(r->dir, &r->d.s, &r->d.at, 1, NULL) == ERR_INTERNAL, "saved without ckpt_prepare");
        if (r->rank == 1) strcpy(r->d.tensor[0][2].name, "c.bias");
        rc = ckpt_prepare(&r->d.s);
        MUST(rc == ERR_INTERNAL && strstr(err_last()->text, "the same tensors"), "%d %s", rc,
             rc ? err_last()->text : "");
        strcpy(r->d.tensor[0][2].name, "b.bias");
        DOES(ckpt_prepare(&r->d.s));
    }
}

static void test_bad_parts(void **state) {
    job j = {.where = *state, .nodes = 1, .ranks = {3}};
    wipe(j.where);
    all_ranks_do(&j, body_bad_parts);
    end_job(&j);
}

// --- nodes with disks of their own -----------------------------------------------------------------------------------

static const job layouts[] = {
    {.nodes = 2, .ranks = {1, 1}, .on = {0, 1}, .deal = 0},
    {.nodes = 2, .ranks = {3, 2}, .on = {0, 1}, .deal = 11},
    {.nodes = 3, .ranks = {2, 1, 2}, .on = {0, 1, 2}, .deal = 12},
    {.nodes = 4, .ranks = {1, 1, 1, 1}, .on = {0, 1, 2, 3}, .deal = 0},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static job layout(const nodes *n, int i) {
    job j = layouts[i];
    j.where = n, j.keep = 3;
    return j;
}

static job without(job j, int node) {
    j.out = NULL;
    for (int k = node; k + 1 < j.nodes; k++) j.ranks[k] = j.ranks[k + 1], j.on[k] = j.on[k + 1];
    j.nodes--;
    j.deal += 5;
    return j;
}

// Each node in turn loses its directory: it comes back with an empty one and is sent everything; or it does not come
// back.
static void test_lost_node(void **state) {
    const nodes *n = *state;
    char path[IO_PATH];
    for (int i = 0; i < LAYOUTS; i++) {
        job j = layout(n, i);
        wipe(n);
        saves(&j, 1, 0);
        saves(&j, 2, 0);
        for (int lost = 0; lost < j.nodes; lost++) {
            job rest = without(j, lost);
            OK(io_remove_tree(n->dir[lost]));
            assert_int_equal(mkdir(n->dir[lost], 0755), 0);
            if (lost % 2) {
                const outcome *o = resumes_at(&rest, 2, 0, 0);
                for (int k = 0; k < rest.nodes; k++) node_has(n, rest.on[k], 2, o);
                node_path(path, n, lost, 2, "");
                assert_int_not_equal(access(path, F_OK), 0);
                end_job(&rest);
            }
            const outcome *o = resumes_at(&j, 2, 0, 0);
            for (int k = 0; k < j.nodes; k++) node_has(n, k, 2, o);
            saves(&j, 1, 0);  // as after the save: each node has its own files and its neighbour's
            OK(io_remove_tree(n->dir[lost]));
            assert_int_equal(mkdir(n->dir[lost], 0755), 0);
            saves(&j, 2, 0);
        }
        end_job(&j);
    }
}

// Two neighbours of four: what both had is gone. The step before, which was saved by two nodes only, is used; without
// it everything is reported.
static void test_lost_too_many(void **state) {
    const nodes *n = *state;
    char path[IO_PATH], hash[17], state_hash[17];
    job j = layout(n, 3), two = {.where = n, .nodes = 2, .ranks = {1, 1}, .on = {0, 3}, .keep = 3},
        one = {.where = n, .nodes = 1, .ranks = {1}};
    wipe(n);
    saves(&two, 1, 0);
    saves(&j, 2, 0);
    for (int k = 1; k <= 2; k++) {
        node_path(path, n, k, 2, "");
        OK(io_remove_tree(path));
    }
    const outcome *o = resumes_at(&j, 1, 0, 1);
    for (int r = 0; r < 4; r++)
        if (!strstr(j.out[r].complaint, "step-00000002") ||
            !strstr(j.out[r].complaint, "model-00001-of-00004.safetensors" CKPT_END) ||
            !strstr(j.out[r].complaint, "rank 1, written on host-b"))
            fail_msg("\"%s\" does not say what is missing", j.out[r].complaint);
    for (int k = 0; k < 4; k++) {
        node_has(n, k, 1, o);
        node_path(path, n, k, 1, "");
        OK(io_remove_tree(path));
    }
    all_ranks_do(&j, body_resume);
    o = same_on_all(&j);
    assert_int_equal(o->rc, ERR_DATA);
    for (int r = 0; r < 4; r++)
        if (!strstr(j.out[r].text, "step-00000002: 2 of its 8 files are missing") ||
            !strstr(j.out[r].text, "rank 1, written on host-b"))
            fail_msg("\"%s\" does not say what is missing", j.out[r].text);
    node_path(path, n, 0, 2, "");
    FAILS(ckpt_hash_dir(path, hash, state_hash), ERR_DATA, "step-00000002: 4 of its 8 files are missing",
          "rank 1, written on host-b");
    all_ranks_do(&one, body_resume);
    assert_int_equal(one.out->rc, ERR_DATA);
    if (!strstr(one.out->text, "none of its 1") || !strstr(one.out->text, "4 of its 8 files are missing"))
        fail_msg("%s", one.out->text);
    end_job(&j), end_job(&two), end_job(&one);
}

// What no node can read may be whole: the ranks end so that they are started again. Where another node has it, it is
// taken from there.
static void test_unreadable(void **state) {
    const nodes *n = *state;
    static const char *const files[] = {"manifest.json", "model-00000-of-00002.safetensors" CKPT_END,
                                        "optimizer-00001-of-00002.safetensors" CKPT_END};
    for (int i = 0; i < 3; i++) {
        char path[2][IO_PATH];
        job j = layout(n, 0);
        wipe(n);
        saves(&j, 1, 0);
        for (int k = 0; k < 2; k++) node_path(path[k], n, k, 1, files[i]), make_unreadable(path[k]);
        all_ranks_do(&j, body_resume);
        const outcome *o = same_on_all(&j);
        assert_int_equal(o->rc, ERR_IO);
        if (!strstr(o->text, "of 1 checkpoint 1 could not be read. ") || !strstr(o->text, strerror(ELOOP)))
            fail_msg("%s", o->text);
        make_readable(path[1]);
        node_has(n, 0, 1, resumes_at(&j, 1, 0, 1));
        end_job(&j);
    }
}

// A directory that was not finished, on a node whose disk refuses to read its manifest, is no remains to be removed:
// it may be whole, and all that this node has.
static void test_unreadable_remains(void **state) {
    const nodes *n = *state;
    char path[2][IO_PATH], tmp[2][IO_PATH], manifest[IO_PATH + 32];
    job j = layout(n, 0);
    wipe(n);
    saves(&j, 1, 0);
    for (int k = 0; k < 2; k++) {
        node_path(path[k], n, k, 1, "");
        snprintf(tmp[k], sizeof tmp[k], "%.*s/.tmp-step-00000001", (int)(strrchr(path[k], '/') - path[k]), path[k]);
        assert_int_equal(rename(path[k], tmp[k]), 0);
        snprintf(manifest, sizeof manifest, "%s/manifest.json", tmp[k]);
        make_unreadable(manifest);
    }
    all_ranks_do(&j, body_resume);
    assert_int_equal(same_on_all(&j)->rc, ERR_IO);
    for (int k = 0; k < 2; k++) {
        snprintf(manifest, sizeof manifest, "%s/manifest.json", tmp[k]);
        make_readable(manifest);
    }
    resumes_at(&j, 1, 0, 0);
    end_job(&j);
}

static void body_load_another(rank_of *r) {
    char path[IO_PATH];
    snprintf(path, sizeof path, "%s/ckpt/step-00000002", r->dir);
    err_t rc = ckpt_load(path, &r->d.s, &r->d.at, false);
    MUST(rc == ERR_DATA && strstr(err_last()->text, "rank 2 has another checkpoint of this name than rank 0"), "%d %s",
         rc, rc ? err_last()->text : "");
}

// Nodes that were apart: the same step, of two histories. They are never mixed.
static void test_two_histories(void **state) {
    const nodes *n = *state;
    job both = {.where = n, .nodes = 2, .ranks = {2, 1}, .on = {0, 1}, .keep = 3}, a = without(both, 1),
        b = without(both, 0);
    wipe(n);
    saves(&both, 1, 0);
    saves(&a, 2, 1);
    saves(&b, 2, 2);
    all_ranks_do(&both, body_load_another);
    saves(&b, 3, 2);
    const outcome *o = resumes_at(&both, 3, 2, 0);
    node_has(n, 0, 3, o);
    char path[IO_PATH];
    for (int k = 0; k < 2; k++) {
        node_path(path, n, k, 3, "");
        OK(io_remove_tree(path));
    }
    all_ranks_do(&both, body_resume);
    o = same_on_all(&both);
    assert_true(o->found && o->step == 2 && (o->n == 1 || o->n == 2));
    for (int k = 0; k < 2; k++) node_has(n, k, 2, o);
    end_job(&a), end_job(&b), end_job(&both);
}

// --- damage ----------------------------------------------------------------------------------------------------------

static void flip(const nodes *n, int node, int64_t step, const char *file, int64_t from_end) {
    char path[IO_PATH], byte;
    node_path(path, n, node, step, file);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    off_t at = lseek(fd, 0, SEEK_END) - from_end;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 8;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void says(const job *j, const char *a, const char *b) {
    for (int r = 0; r < j->mesh.world; r++)
        if (!strstr(j->out[r].complaint, a) || !strstr(j->out[r].complaint, b))
            fail_msg("rank %d: \"%s\" does not name %s and %s", r, j->out[r].complaint, a, b);
}

// On one node there is no copy: the tensor is named, and the step before it is used, whichever rank reads.
static void test_damage_on_one_node(void **state) {
    const nodes *n = *state;
    static const struct {
        const char *file, *tensor;
        int64_t from_end;
    } damage[] = {
        {"model-00001-of-00003.safetensors" CKPT_END,
         CKPT_COMPRESS ? "tensor h@0: " : "tensor h (elements 0 to 16383:", 10},
        {"model-00000-of-00003.safetensors" CKPT_END,
         CKPT_COMPRESS ? "tensor emb@0: " : "tensor emb (elements 0 to 131071:", CHUNK * 4 + 1000},
        {"optimizer-00002-of-00003.safetensors" CKPT_END, CKPT_COMPRESS ? "tensor v/s: " : "tensor v/s (4 bytes",
         CKPT_COMPRESS ? 18478 : 4619 * 4 + 2},
        {"optimizer-00001-of-00003.safetensors" CKPT_END, "header", 0},
        {"model-00002-of-00003.safetensors" CKPT_END, CKPT_COMPRESS ? "cut short" : "truncated", -1},
        {"optimizer-00000-of-00003.safetensors" CKPT_END, "missing", -2},
        {"manifest.json", "digest", 200},
    };
    const int worlds[] = {3, 2, 1, 5};
    for (int i = 0; i < 7; i++) {
        char path[IO_PATH];
        job j = {.where = n, .nodes = 1, .ranks = {3}, .keep = 3};
        struct stat st;
        wipe(n);
        saves(&j, 1, 0);
        saves(&j, 2, 0);
        node_path(path, n, 0, 2, damage[i].file);
        assert_int_equal(stat(path, &st), 0);
        if (damage[i].from_end == -1) assert_int_equal(truncate(path, st.st_size - 1), 0);
        else if (damage[i].from_end == -2) assert_int_equal(unlink(path), 0);
        else flip(n, 0, 2, damage[i].file, damage[i].from_end ? damage[i].from_end : st.st_size - 20);
        for (int k = 0; k < 4; k++) {
            job load = {.where = n, .nodes = 1, .ranks = {worlds[k]}, .deal = (uint32_t)k};
            resumes_at(&load, 1, 0, 1);
            says(&load, damage[i].file, damage[i].tensor);
            says(&load, "step-00000002", "");
            end_job(&load);
        }
        end_job(&j);
    }
}

// With several nodes the next one has a copy: the damage is reported, and mended. Where both copies are damaged the
// step before is used.
static void test_damage_is_mended(void **state) {
    const nodes *n = *state;
    static const struct {
        const char *file, *says;
        int64_t from_end;
    } damage[] = {
        {"model-00001-of-00003.safetensors" CKPT_END, "tensor ", 10},
        {"optimizer-00001-of-00003.safetensors" CKPT_END, "header", 0},
        {"model-00001-of-00003.safetensors" CKPT_END, CKPT_COMPRESS ? "cut short" : "truncated", -1},
        {"manifest.json", "digest", 200},
    };
    for (int i = 0; i < 4; i++) {
        char path[IO_PATH];
        struct stat st;
        job j = {.where = n, .nodes = 3, .ranks = {1, 1, 1}, .on = {0, 1, 2}, .keep = 3};
        wipe(n);
        saves(&j, 1, 0);
        saves(&j, 2, 0);
        for (int copies = 1; copies <= 2; copies++) {
            if (i == 3 && copies == 2) break;
            for (int node = 1; node <= copies; node++) {
                node_path(path, n, node, 2, damage[i].file);
                assert_int_equal(stat(path, &st), 0);
                if (damage[i].from_end == -1) assert_int_equal(truncate(path, st.st_size - 1), 0);
                else flip(n, node, 2, damage[i].file, damage[i].from_end ? damage[i].from_end : st.st_size - 20);
            }
            if (copies == 2 && damage[i].from_end == 10) {  // the third has got one meanwhile
                node_path(path, n, 0, 2, damage[i].file);
                assert_int_equal(unlink(path), 0);
            }
            if (copies == 2 && damage[i].from_end != 10) {
                for (int node = 0; node < 3; node += 2) {
                    node_path(path, n, node, 2, damage[i].file);
                    unlink(path);
                }
            }
            const outcome *o = resumes_at(&j, copies == 1 ? 2 : 1, 0, 1);
            if (copies == 1) says(&j, damage[i].file, damage[i].says);
            for (int k = 0; k < 3 && copies == 1; k++) node_has(n, k, 2, o);
        }
        end_job(&j);
    }
}

// --- the rest --------------------------------------------------------------------------------------------------------

static void body_best_and_prune(rank_of *r) {
    char best[IO_PATH], target[64] = "";
    fault_list faults;
    for (int64_t step = 1; step <= 4; step++) {
        fill_dealt(&r->d, step, 0);
        DOES(ckpt_save(r->dir, &r->d.s, &r->d.at, 0, NULL));
    }
    DOES(ckpt_mark_best(r->dir, &r->d.s, 1, NULL));
    DOES(fault_parse(&faults, r->rank == 2 ? "rename@1" : ""));
    err_t rc = ckpt_mark_best(r->dir, &r->d.s, 9, NULL);
    MUST(rc == ERR_IO && strstr(err_last()->text, "step-00000009"), "%d", rc);
    rc = ckpt_mark_best(r->dir, &r->d.s, 3, &faults);
    MUST(rc == ERR_IO && strstr(err_last()->text, "rename"), "%d", rc);
    DOES(ckpt_mark_best(r->dir, &r->d.s, 2, NULL));
    snprintf(best, sizeof best, "%s/best", r->dir);
    MUST(readlink(best, target, sizeof target - 1) == 18 && strcmp(target, "ckpt/step-00000002") == 0, "%s", target);
    DOES(ckpt_prune(r->dir, &r->d.s, &r->d.at, 4, 1));
    r->out->n = 0;
}

static void test_best_and_prune(void **state) {
    const nodes *n = *state;
    job j = {.where = n, .nodes = 2, .ranks = {2, 1}, .on = {0, 1}};
    wipe(n);
    all_ranks_do(&j, body_best_and_prune);
    for (int k = 0; k < 2; k++) {
        world w;
        strcpy(w.dir, n->dir[k]);
        holds(&w, "step-00000002 step-00000004 ");
    }
    end_job(&j);
}

static void body_other_run(rank_of *r) {
    strcpy(r->d.s.key[0].value, "12");
    r->out->rc = ckpt_resume(r->dir, &r->d.s, &r->d.at, &r->out->found, count_complaint, r->out);
    MUST(r->out->rc == ERR_CONFIG && strstr(err_last()->text, "batch.global"), "%d", r->out->rc);
}

static void test_mismatch(void **state) {
    job j = {.where = *state, .nodes = 2, .ranks = {2, 1}, .on = {0, 1}, .keep = 1};
    wipe(j.where);
    all_ranks_do(&j, body_resume);
    assert_false(same_on_all(&j)->found);
    assert_int_equal(j.out->rc, ERR_OK);
    saves(&j, 1, 0);
    all_ranks_do(&j, body_other_run);
    assert_int_equal(same_on_all(&j)->complaints, 0);
    end_job(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NODES(test_any_world),          NODES(test_files),          NODES(test_bad_parts),
        NODES(test_lost_node),          NODES(test_lost_too_many),  NODES(test_unreadable),
        NODES(test_unreadable_remains), NODES(test_two_histories),  NODES(test_damage_on_one_node),
        NODES(test_damage_is_mended),   NODES(test_best_and_prune), NODES(test_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
