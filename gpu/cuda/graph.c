// gpu/cuda/graph.c: recordings are CUDA graphs: hundreds of launches become one, which costs the host as much as one.
#include "gpu/cuda/cuda.h"

#include <stdlib.h>

struct recording {
    device *dev;
    cudaGraphExec_t exec;
};

err_t cuda_record_begin(stream *s) {
    CUDA(cudaStreamBeginCapture(s->native, cudaStreamCaptureModeThreadLocal));
    s->recording = true;
    return ERR_OK;
}

err_t cuda_record_end(stream *s, recording **out) {
    cudaGraph_t graph = NULL;
    *out = NULL;
    s->recording = false;
    CUDA(cudaStreamEndCapture(s->native, &graph));
    recording *r = calloc(1, sizeof *r);
    err_t rc = r ? cuda_status(cudaGraphInstantiate(&r->exec, graph, 0), "cudaGraphInstantiate", __FILE__, __LINE__)
                 : err_set(ERR_INTERNAL, "no memory for a recording");
    (void)cudaGraphDestroy(graph);
    if (rc != ERR_OK) {
        free(r);
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    r->dev = s->dev;
    *out = r;
    return ERR_OK;
}

err_t cuda_recording_run(recording *r, stream *s) {
    CUDA(cudaGraphLaunch(r->exec, s->native));
    return cuda_launched(s, "a recording", __FILE__, __LINE__);
}

void cuda_recording_close(recording *r) {
    (void)cudaGraphExecDestroy(r->exec);
    free(r);
}
