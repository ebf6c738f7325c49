#include "check.h"

__global__ void fill(int *p, int v) { p[threadIdx.x] = v + threadIdx.x; }
__global__ void copy(int *to, const int *from) { to[threadIdx.x] = from[threadIdx.x]; }

int main()
{
    int *d, host[32];
    CUDA(cudaMalloc(&d, sizeof host));
    CUDA(cudaMemset(d, 0, sizeof host));
    cudaStream_t s;
    CUDA(cudaStreamCreate(&s));

    // an allocation that is captured, used and freed in the graph
    cudaGraph_t graph;
    int *scratch;
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CUDA(cudaMallocAsync(&scratch, sizeof host, s));
    fill<<<1, 32, 0, s>>>(scratch, 100);
    copy<<<1, 32, 0, s>>>(d, scratch);
    CUDA(cudaFreeAsync(scratch, s));
    CUDA(cudaStreamEndCapture(s, &graph));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaMemset(d, 0, sizeof host));
        CUDA(cudaGraphLaunch(exec, s));
        CUDA(cudaStreamSynchronize(s));
        CUDA(cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost));
        for (int k = 0; k < 32; k++) CHECK(host[k] == 100 + k);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));

    // nodes made by hand through one call, memory that is freed outside of the graph
    CUDA(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t node, kernel;
    cudaMemAllocNodeParams memory = {};
    memory.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.poolProps.location.type = cudaMemLocationTypeDevice;
    memory.poolProps.location.id = 0;
    memory.bytesize = sizeof host;
    CUDA(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &memory));
    CHECK(memory.dptr != nullptr);
    int value = 7;
    void *args[] = {&memory.dptr, &value};
    cudaGraphNodeParams any = {};
    any.type = cudaGraphNodeTypeKernel;
    any.kernel.func = (void *)fill;
    any.kernel.gridDim = dim3(1);
    any.kernel.blockDim = dim3(32);
    any.kernel.kernelParams = args;
    CUDA(cudaGraphAddNode(&kernel, graph, &node, nullptr, 1, &any));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, s));
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemcpy(host, memory.dptr, sizeof host, cudaMemcpyDeviceToHost));
    for (int k = 0; k < 32; k++) CHECK(host[k] == 7 + k);
    CUDA(cudaFree(memory.dptr));
    value = 50;
    CUDA(cudaGraphExecNodeSetParams(exec, kernel, &any));
    CUDA(cudaGraphLaunch(exec, s));
    copy<<<1, 32, 0, s>>>(d, (const int *)memory.dptr);
    CUDA(cudaFreeAsync(memory.dptr, s));
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost));
    for (int k = 0; k < 32; k++) CHECK(host[k] == 50 + k);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    size_t used = 1;
    CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    CHECK(used == 0);
    CUDA(cudaDeviceGraphMemTrim(0));
    puts("ok");
}
