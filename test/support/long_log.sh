# test/support/long_log.sh: the directory of a long run that never was, with everything in it that a report draws.

# long NAME STEPS RANKS: a log with everything in it, of loss spikes at 3 known steps.
long() {
    mkdir -p "$1"
    awk -v n="$2" -v ranks="$3" 'BEGIN {
        srand(7)
        for (i = 1; i <= n; i++) {
            loss = 2 + 9 / (1 + i / 3000) ^ 0.4 + 0.1 * rand()
            if (i == 777 || i == 500001 || i == n - 3) loss = 40 + i / n
            printf "{\"t\":\"step\",\"step\":%d,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":%.9g,\"tokens\":%d,\"ms\":%.9g,\"tokens_per_s\":%.9g,\"mfu\":%.6g,\"data_wait_ms\":%.9g,\"comm_wait_ms\":%.9g,\"comm_ms\":3,\"comm_hidden\":%.6g,\"slowest_rank\":1,\"slowest_compute_ms\":41,\"median_compute_ms\":40,\"loss_scale\":%d,\"skipped\":%s,\"hash\":\"%08x%08x\",\"time\":%.3f,\"resident\":%d,\"device_bytes\":%d}\n", i, loss, 0.5 + rand() * rand(), 1e-3 * (1 - i / n), i * 2048, 45 + 5 * rand(), 43000 + 3000 * rand(), 0.4 + 0.01 * rand(), rand() * 0.1, rand(), rand(), 2 ^ (10 + i % 7), i % 5000 == 4999 ? "true" : "false", i * 7919 % 4294967296, i, 1790000000 + i * 0.047, 1e9 + i, 6e10 + 1e9 * rand()
            if (i % 2500 == 0) printf "{\"t\":\"eval\",\"step\":%d,\"loss\":%.9g,\"accuracy\":%.6g,\"bits_per_byte\":1.1,\"acc\":0.3,\"acc_norm\":0.4,\"best\":%.9g,\"best_step\":%d,\"windows\":2312,\"ms\":5000.1}\n", i, loss + 0.05, rand(), loss, i
            if (i % 100 == 0) {
                printf "{\"t\":\"ranks\",\"step\":%d,\"steps\":100", i
                m = split("compute_ms data_ms wait_ms before_ms after_ms tensor_ms", k, " ")
                for (j = 1; j <= m; j++) {
                    printf ",\"%s\":[", k[j]
                    for (r = 0; r < ranks; r++) printf "%s%.4g", r ? "," : "", j == 1 ? 40 + 20 * rand() : rand()
                    printf "]"
                }
                print "}"
            }
            if (i % 100000 == 0) {
                printf "{\"t\":\"sample\",\"step\":%d,\"prompt\":\"<&\",\"text\":\"", i
                for (j = 0; j < 4000; j++) printf "<"
                print "\"}"
            }
        }
    }' >"$1/log.jsonl"
    awk -v n="$2" 'BEGIN {
        for (i = 0; i < 5000; i++) printf "{\"t\":\"event\",\"at\":\"2026-09-21T14:%02d:%02dZ\",\"kind\":\"kind_%d\",\"step\":%d,\"text\":\"<&>\"}\n", i / 60 % 60, i % 60, i, i * n / 5000
    }' >"$1/events.jsonl"
    awk -v ranks=8 'BEGIN {
        srand(5)
        for (i = 0; i < 5000; i++) {
            printf "{\"t\":\"machine\",\"time\":%d,\"node\":0,\"host\":\"h\",\"step\":%d,\"disk_free\":%d,\"disk_read_per_s\":%d,\"disk_written_per_s\":%d,\"cpu\":%.3f,\"ranks\":[", 1790000000 + 10 * i, i * 200, 1e12 - i * 1e7, 1e8 * rand(), 1e8 * rand(), 8 * rand()
            for (r = 0; r < ranks; r++) printf "%s{\"rank\":%d,\"watts\":%.3f,\"watts_max\":700,\"celsius\":%.2f,\"mhz\":%d,\"utilisation\":%.3f,\"resident\":%d,\"device_used\":%d,\"limited\":\"no\"}", r ? "," : "", r, 600 + 90 * rand(), 60 + 9 * rand(), 1700 + 55 * rand(), rand(), 5e9 * rand(), 6e10 * rand()
            print "]}"
        }
    }' >"$1/machine.jsonl"
    "$bin" config | sed 's/^steps = .*/steps = 1000000/' >"$1/config.ini"
}
