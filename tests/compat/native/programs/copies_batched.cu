#include "check.h"

int main()
{
    int a[4] = {1, 2, 3, 4}, b[4] = {}, *d, *e;
    CUDA(cudaMalloc(&d, sizeof a));
    CUDA(cudaMalloc(&e, sizeof a));
    cudaStream_t s;
    CUDA(cudaStreamCreate(&s));
    const void *sources[2] = {a, a + 2};
    void *targets[2] = {d + 2, d};
    size_t sizes[2] = {8, 8}, first = 0;
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    CUDA(cudaMemcpyBatchAsync(targets, sources, sizes, 2, &attributes, &first, 1, s));
    const void *back[1] = {d};
    void *home[1] = {b};
    size_t whole[1] = {16};
    CUDA(cudaMemcpyBatchAsync(home, back, whole, 1, &attributes, &first, 1, s));
    CUDA(cudaStreamSynchronize(s));
    CHECK(b[0] == 3 && b[1] == 4 && b[2] == 1 && b[3] == 2);
    puts("ok");
}
