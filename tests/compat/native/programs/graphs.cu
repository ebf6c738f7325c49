#include "check.h"
#include <vector>

__global__ void add(int *p, int v) { p[threadIdx.x] += v; }
__global__ void scale(int *p, int v) { p[threadIdx.x] *= v; }

int main()
{
    int *d, host[32];
    CUDA(cudaMalloc(&d, sizeof host));
    cudaStream_t s, t;
    CUDA(cudaStreamCreate(&s));
    CUDA(cudaStreamCreate(&t));
    cudaEvent_t fork, join;
    CUDA(cudaEventCreate(&fork));
    CUDA(cudaEventCreate(&join));

    // captured, with a second stream forked off and joined
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    CUDA(cudaStreamIsCapturing(s, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    CUDA(cudaMemsetAsync(d, 0, sizeof host, s));
    add<<<1, 32, 0, s>>>(d, 3);
    CUDA(cudaEventRecord(fork, s));
    CUDA(cudaStreamWaitEvent(t, fork, 0));
    scale<<<1, 32, 0, t>>>(d, 5);
    CUDA(cudaEventRecord(join, t));
    CUDA(cudaStreamWaitEvent(s, join, 0));
    add<<<1, 32, 0, s>>>(d, 1);
    CUDA(cudaStreamEndCapture(s, &graph));
    size_t count = 0;
    CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(count == 4);
    std::vector<cudaGraphNode_t> nodes(count);
    CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
    int kernels = 0;
    for (auto node : nodes) {
        cudaGraphNodeType type;
        CUDA(cudaGraphNodeGetType(node, &type));
        kernels += type == cudaGraphNodeTypeKernel;
    }
    CHECK(kernels == 3);
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CUDA(cudaMemset(d, 0xff, sizeof host));
        CUDA(cudaGraphLaunch(exec, s));
        CUDA(cudaStreamSynchronize(s));
        CUDA(cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost));
        for (int v : host) CHECK(v == 16);
    }

    // the same shape with other parameters: update in place
    cudaGraph_t other;
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMemsetAsync(d, 0, sizeof host, s));
    add<<<1, 32, 0, s>>>(d, 10);
    CUDA(cudaEventRecord(fork, s));
    CUDA(cudaStreamWaitEvent(t, fork, 0));
    scale<<<1, 32, 0, t>>>(d, 2);
    CUDA(cudaEventRecord(join, t));
    CUDA(cudaStreamWaitEvent(s, join, 0));
    add<<<1, 32, 0, s>>>(d, 7);
    CUDA(cudaStreamEndCapture(s, &other));
    cudaGraphExecUpdateResultInfo info;
    CUDA(cudaGraphExecUpdate(exec, other, &info));
    CHECK(info.result == cudaGraphExecUpdateSuccess);
    CUDA(cudaGraphLaunch(exec, s));
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost));
    for (int v : host) CHECK(v == 27);

    // nodes made by hand
    cudaGraph_t made;
    CUDA(cudaGraphCreate(&made, 0));
    cudaGraphNode_t clear, first, second, clone_of_second, empty;
    cudaMemsetParams memset_params = {};
    memset_params.dst = d;
    memset_params.elementSize = 4;
    memset_params.width = 32;
    memset_params.height = 1;
    memset_params.value = 2;
    CUDA(cudaGraphAddMemsetNode(&clear, made, nullptr, 0, &memset_params));
    int three = 3, four = 4;
    void *args[] = {&d, &three};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)add;
    kernel.gridDim = dim3(1);
    kernel.blockDim = dim3(32);
    kernel.kernelParams = args;
    CUDA(cudaGraphAddKernelNode(&first, made, &clear, 1, &kernel));
    kernel.func = (void *)scale;
    CUDA(cudaGraphAddKernelNode(&second, made, &first, 1, &kernel));
    CUDA(cudaGraphAddEmptyNode(&empty, made, &second, 1));
    cudaGraphExec_t made_exec;
    CUDA(cudaGraphInstantiateWithFlags(&made_exec, made, 0));
    CUDA(cudaGraphLaunch(made_exec, s));
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost));
    for (int v : host) CHECK(v == 15);
    args[1] = &four;
    CUDA(cudaGraphExecKernelNodeSetParams(made_exec, second, &kernel));
    CUDA(cudaGraphLaunch(made_exec, s));
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemcpy(host, d, sizeof host, cudaMemcpyDeviceToHost));
    for (int v : host) CHECK(v == 20);
    cudaGraph_t clone;
    CUDA(cudaGraphClone(&clone, made));
    CUDA(cudaGraphNodeFindInClone(&clone_of_second, second, clone));
    cudaKernelNodeParams read_back = {};
    CUDA(cudaGraphKernelNodeGetParams(clone_of_second, &read_back));
    CHECK(read_back.blockDim.x == 32 && read_back.gridDim.x == 1);

    // what may not be captured ends the capture
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    EXPECT(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s));
    cudaGraph_t none = nullptr;
    EXPECT(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &none));
    CHECK(none == nullptr);
    (void)cudaGetLastError();
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphExecDestroy(made_exec));
    for (cudaGraph_t g : {graph, other, made, clone}) CUDA(cudaGraphDestroy(g));
    CUDA(cudaDeviceSynchronize());
    puts("ok");
}
