"""Walks over 200,000 empty files in 200 folders: natively, and on mounts of two builds (./stoker-old, ./stoker-new)."""
import os,subprocess,time,tempfile,resource,sys
T=tempfile.mkdtemp(prefix='mfind-')
data=T+'/data'
for f in range(200):
    d=f'{data}/bk/train/n{f:05d}'; os.makedirs(d)
    for i in range(1000):
        os.close(os.open(f'{d}/n{f:05d}_{i:06d}.JPEG',os.O_CREAT|os.O_WRONLY))
        
time.sleep(2.5)
env=dict(os.environ,STOKER_RUNTIME_DIR=T+'/run'); os.mkdir(T+'/run')
em=subprocess.Popen(['./stoker-new','emulate',data,'--listen','127.0.0.1:18744'],env=env,stdout=subprocess.DEVNULL)
time.sleep(1.5)
def cpu(pid):
    s=open(f'/proc/{pid}/stat').read().rsplit(')',1)[1].split(); return (int(s[11])+int(s[12]))/100
def run(cmd,pid=None):
    a=resource.getrusage(resource.RUSAGE_CHILDREN); d=cpu(pid) if pid else 0; t=time.time()
    p=subprocess.Popen(cmd,stdout=subprocess.DEVNULL); p.wait()
    t=time.time()-t; b=resource.getrusage(resource.RUSAGE_CHILDREN); d=(cpu(pid) if pid else 0)-d
    return t,b.ru_utime-a.ru_utime+b.ru_stime-a.ru_stime,d
for r in range(3):
    for name in ['native','old','new']:
        if name=='native':
            for what in (['find','X','-type','f'],['ls','-lR','X']):
                print(r,name,what[0],'wall %.2f cpu %.2f daemon %.2f'%run([w.replace('X',data+'/bk') for w in what]),flush=True)
            continue
        for what in (['find','X','-type','f'],['ls','-lR','X']):
            mnt=f'{T}/mnt'; os.makedirs(mnt,exist_ok=True)
            p=subprocess.Popen([f'./stoker-{name}','mount','s3://bk',mnt,'--endpoint','http://127.0.0.1:18744','--region','us-east-1','--anonymous','--cache',f'{T}/cache-{name}','--fill','off'],env=env,stderr=subprocess.DEVNULL,stdout=subprocess.DEVNULL)
            while not os.path.ismount(mnt): time.sleep(.1)
            time.sleep(.3)
            for again in range(2 if what[0]=='find' else 1):
                print(r,name,what[0],'again' if again else 'first','wall %.2f cpu %.2f daemon %.2f'%run([w.replace('X',mnt) for w in what],p.pid),flush=True)
            p.terminate(); p.wait()
em.terminate(); em.wait()
subprocess.run(['rm','-rf',T])
